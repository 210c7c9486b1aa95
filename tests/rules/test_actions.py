"""Actions as they are written down: what is taken, what is skipped, what is shown."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from smdebug.exceptions import SMDebugValueError
from smdebug.rules import action as package
from smdebug.rules.action.action import Actions
from smdebug.rules.action.message_action import MessageAction
from smdebug.rules.action.stop_training_action import StopTrainingAction
from smdebug.rules.action.webhook_action import WebhookAction
from smdebug.storage.findings import Finding

WEBHOOK = {"name": "webhook", "endpoint": "https://Hooks.example.org/AbC/dEf?Key=Xy"}
STOP = {"name": "stoptraining", "training_job_prefix": "ResNet-Job"}
FINDING = Finding("VanishingGradient", 40, "gradient/fc.weight has vanished")


def messages(caplog: pytest.LogCaptureFixture, level: int = logging.WARNING) -> list[str]:
    found = [record for record in caplog.records if record.name.startswith("smdebug")]
    return [record.getMessage() for record in found if record.levelno >= level]


def url_of(actions: Actions) -> str:
    (action,) = actions.actions
    assert isinstance(action, WebhookAction)
    return action._url


def test_import_paths() -> None:
    assert package.Actions is Actions
    assert MessageAction.__module__ == "smdebug.rules.action.message_action"
    assert StopTrainingAction.__module__ == "smdebug.rules.action.stop_training_action"


@pytest.mark.parametrize("given", ["", None, "  ", "null", "[]", [], '""', ()])
def test_nothing_is_no_action(given: Any, caplog: pytest.LogCaptureFixture) -> None:
    before = threading.active_count()
    actions = Actions(given, "Rule")
    actions.invoke(FINDING)
    actions.close()
    assert actions.actions == []
    assert repr(actions) == "Actions([])"
    assert messages(caplog) == []
    assert threading.active_count() == before


# One layer of escapes, as a JSON string that has lost its quotes.
def escaped(text: str) -> str:
    return json.dumps(text)[1:-1]


ONE = json.dumps(WEBHOOK)
MANY = json.dumps([WEBHOOK])


@pytest.mark.parametrize(
    "given",
    [
        WEBHOOK, [WEBHOOK], (WEBHOOK,), ONE, MANY, f"  {MANY}\n",
        json.dumps(MANY), json.dumps(json.dumps(ONE)),
        escaped(MANY), escaped(escaped(MANY)), escaped(ONE), json.dumps(escaped(MANY)),
        MANY.replace("}", ",}"),
        escaped(json.dumps([WEBHOOK], indent=2)), escaped(MANY).replace(", ", ",\n "),
    ],
)  # fmt: skip
def test_spellings_of_the_same(given: Any, caplog: pytest.LogCaptureFixture) -> None:
    assert url_of(Actions(given)) == "https://Hooks.example.org/AbC/dEf?Key=Xy"
    assert messages(caplog) == []


@pytest.mark.parametrize("name", ["webhook", "WebHook", "WEBHOOK", " webhook "])
@pytest.mark.parametrize("key", ["endpoint", "Endpoint", "url", "URL"])
def test_names_and_keys_in_any_case(name: str, key: str) -> None:
    actions = Actions({"Name": name, key: "https://a.org/Path"})
    assert url_of(actions) == "https://a.org/Path"


def test_the_case_of_values_is_kept() -> None:
    given = [
        {"NAME": "StopTraining", "Training_Job_Prefix": "ResNet-Job"},
        {"name": "EMAIL", "endpoint": "Jane.Doe@Example.org"},
        {"name": "Sms", "endpoint": "+15550100"},
    ]
    stop = StopTrainingAction("Rule", given[0]["Training_Job_Prefix"])
    email = MessageAction("Rule", given[1]["name"], given[1]["endpoint"])
    sms = MessageAction("Rule", given[2]["name"], given[2]["endpoint"])
    assert stop.training_job_prefix == "ResNet-Job"
    assert (email.message_type, email.message_endpoint) == ("email", "Jane.Doe@Example.org")
    assert (sms.message_type, sms.message_endpoint) == ("sms", "+15550100")
    (made,) = Actions(given[0], "Rule").actions
    assert repr(made) == repr(stop) == "StopTrainingAction(ResNet-Job)"


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("stoptraining", "'stoptraining'"),
        ('[{"name": "sms"', """'[{"name": "sms"'"""),
        ('{"name": sms}', "Expecting value: line 1 column 10"),
        ('"stoptraining"', "stoptraining"),
        ("7", "'7'"),
        ("true", "'true'"),
        (7, "7"),
        (2.5, "2.5"),
        ("[" * 100_000, "RecursionError"),
        (json.dumps(json.dumps(json.dumps(json.dumps(json.dumps(ONE))))), "JSON"),
    ],
)
def test_what_is_not_json_is_an_error(given: Any, shown: str) -> None:
    with pytest.raises(SMDebugValueError, match="actions must be") as caught:
        Actions(given, "Rule")
    assert shown in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"name": "fax", "endpoint": "1"}, "its name is 'fax'"),
        ({"name": 5}, "its name is 5"),
        ({}, "it has no 'name'"),
        ({"endpoint": "x"}, "it has no 'name'"),
        ({"name": "stoptraining"}, "stoptraining has no 'training_job_prefix'"),
        ({"name": "stoptraining", "training_job_prefix": ""}, "no 'training_job_prefix'"),
        ({"name": "stoptraining", "training_job_prefix": "  "}, "training_job_prefix must be"),
        ({"name": "stoptraining", "training_job_prefix": 3}, "training_job_prefix must be"),
        ({"name": "email"}, "email has no 'endpoint'"),
        ({"name": "email", "endpoint": None}, "email has no 'endpoint'"),
        ({"name": "email", "endpoint": ["a"]}, "endpoint must be"),
        ({"name": "sms", "endpoint": ""}, "sms has no 'endpoint'"),
        ({"name": "sms", "endpoint": "1", "min_interval": -1}, "min_interval must be"),
        ({"name": "webhook"}, "webhook has no 'endpoint'"),
        ({"name": "webhook", "url": ""}, "webhook has no 'endpoint'"),
        ({**WEBHOOK, "timeout": "soon"}, "timeout must be a number"),
        ({**WEBHOOK, "timeout": 0}, "timeout must be a number of at least 0.1"),
        ({**WEBHOOK, "min_interval": "nan"}, "min_interval must be"),
        ("stoptraining", "it must be an object, got 'stoptraining'"),
        (None, "it must be an object, got None"),
    ],
)
def test_what_cannot_be_used_is_logged_once_and_skipped(
    entry: Any, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    actions = Actions([entry, STOP], "MyRule")
    (kept,) = actions.actions
    assert isinstance(kept, StopTrainingAction)
    (message,) = messages(caplog)
    assert said in message
    assert "MyRule" in message
    for known in ("stoptraining (needs training_job_prefix)", "email", "sms", "webhook"):
        assert known in message


def test_a_key_that_does_nothing_is_named(caplog: pytest.LogCaptureFixture) -> None:
    actions = Actions({**WEBHOOK, "timout": "secret-7", "Retries": 3}, "MyRule")
    assert len(actions.actions) == 1
    assert messages(caplog) == ["rule MyRule: the action webhook does not know retries, timout"]


SECRETS = ["pa55word", "T0k3n", "S3cretH", "5ecretQ"]
BARE = "://joe:pa55word@h.example.org/T0k3n/x?key=5ecretQ"


@pytest.mark.parametrize(
    "entry",
    [
        {"name": "webhook", "endpoint": f"https{BARE}", "headers": {"X-Key": "S3cretH"}},
        {"name": "webhook", "endpoint": f"ftp{BARE}"},
        {"name": "webhook", "endpoint": f"HTTPS{BARE}".replace("example.org", "example.org:T0k3n")},
        {"name": "webhook", "endpoint": f"https{BARE}".replace("T0k3n", "T0k3n\n")},
        {"name": "webhook", "endpoint": f"https{BARE}".replace("T0k3n", "T0k3né")},
        {"name": "webhook", "endpoint": "h.example.org/T0k3n"},
        {"name": "webhook", "endpoint": "https://joe:pa55word@/T0k3n"},
        {"name": "webhook", "endpoint": "https://[T0k3n/x"},
        {"name": "webhook", "endpoint": {"url": f"https{BARE}"}},
        {"name": "webhook", "endpoint": f"https{BARE}", "headers": "X-Key: S3cretH"},
        {"name": "webhook", "endpoint": f"https{BARE}", "headers": ["S3cretH"]},
        {"name": "webhook", "endpoint": f"https{BARE}", "headers": {"X-Key": "a\nS3cretH"}},
        {"name": "webhook", "endpoint": f"https{BARE}", "headers": {"X-Key": ["S3cretH"]}},
        {"name": "webhook", "endpoint": f"https{BARE}", "headers": {"S3cretH: x": "a"}},
        {"name": "webhook", "endpoint": f"https{BARE}", "timeout": "?"},
        {"nam": "webhook", "endpoint": f"https{BARE}"},
        [f"https{BARE}"],
        f"https{BARE}",
    ],
)
def test_secrets_are_not_shown(entry: Any, caplog: pytest.LogCaptureFixture) -> None:
    shown = repr(Actions([entry], "Rule"))
    with pytest.raises(SMDebugValueError) as caught:
        Actions(json.dumps([entry])[:-1])
    chained = caught.value.__cause__ or ""
    for text in (shown, *messages(caplog, logging.DEBUG), str(caught.value), str(chained)):
        assert not any(secret in text for secret in SECRETS), text


def test_the_host_of_an_address_is_shown() -> None:
    actions = Actions({"name": "webhook", "endpoint": f"https{BARE}"})
    assert repr(actions) == "Actions([WebhookAction(https://h.example.org/...)])"


def test_boto3_is_not_imported_before_it_is_needed() -> None:
    program = (
        "import sys, smdebug.rules\n"
        "from smdebug.rules.action import Actions\n"
        f"Actions([{STOP!r}, {WEBHOOK!r}])\n"
        "print('boto3' in sys.modules)"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (done.stdout.strip(), done.stderr) == ("False", "")


def test_the_examples_of_the_page(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # Nothing is to be sent from here.
    monkeypatch.setitem(sys.modules, "boto3", None)
    page = Path(__file__).parents[2] / "docs" / "actions.md"
    examples = re.findall(r"```json\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    assert len(examples) == 2
    for example in examples:
        entries = json.loads(example)
        entries = entries if isinstance(entries, list) else [entries]
        assert len(Actions(example, "Rule").actions) == len(entries)
    assert [message for message in messages(caplog) if "boto3" not in message] == []
