"""Stopping jobs and sending messages, against a server that speaks as AWS does."""

from __future__ import annotations

import json
import logging
import socket
import sys
import urllib.request
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from smdebug.exceptions import SMDebugValueError
from smdebug.rules.action import aws
from smdebug.rules.action.action import Actions
from smdebug.rules.action.failure import shown_contact
from smdebug.rules.action.message_action import MessageAction
from smdebug.rules.action.stop_training_action import StopTrainingAction
from smdebug.storage.findings import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.filterwarnings(
    # botocore, not us.
    "ignore:.*utcnow.*:DeprecationWarning"
)

PATIENCE = 60
FINDING = Finding("VanishingGradient", 40, "gradient/fc.weight has vanished")
SECRET_KEY = "wJalrXUtnFEMIexample"
EMAIL = "Jane.Doe@Example.org"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    from moto.sagemaker.responses import SageMakerResponse
    from moto.server import ThreadedMotoServer

    def stop_training_job(self: Any) -> str:
        name = json.loads(self.body)["TrainingJobName"]
        self.sagemaker_backend.training_jobs[name].training_job_status = "Stopping"
        return "{}"

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    try:
        with pytest.MonkeyPatch.context() as patch:
            # moto has jobs, but no way to stop one.
            patch.setattr(SageMakerResponse, "stop_training_job", stop_training_job, raising=False)
            yield f"http://{host}:{port}"
    finally:
        server.stop()


@pytest.fixture
def cloud(server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """An account with nothing in it."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setenv("AWS_ENDPOINT_URL", server)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    urllib.request.urlopen(f"{server}/moto-api/reset", data=b"").close()
    return server


def log_of(caplog: pytest.LogCaptureFixture, level: int = logging.WARNING) -> list[str]:
    found = [record for record in caplog.records if record.name == "smdebug.rules"]
    return [record.getMessage() for record in found if record.levelno >= level]


# ---- jobs


def start_jobs(status: str = "InProgress", /, *names: str) -> None:
    from moto.sagemaker.models import sagemaker_backends

    client = boto3.client("sagemaker")
    for name in names:
        client.create_training_job(
            TrainingJobName=name,
            AlgorithmSpecification={"TrainingImage": "image", "TrainingInputMode": "File"},
            RoleArn="arn:aws:iam::123456789012:role/training",
            OutputDataConfig={"S3OutputPath": "s3://bucket/"},
            ResourceConfig={
                "InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1,
            },
            StoppingCondition={"MaxRuntimeInSeconds": 60},
        )  # fmt: skip
        # Those of moto are completed as soon as they are made.
        backend = sagemaker_backends["123456789012"]["eu-west-1"]
        backend.training_jobs[name].training_job_status = status


def states() -> dict[str, str]:
    jobs = boto3.client("sagemaker").list_training_jobs()["TrainingJobSummaries"]
    return {job["TrainingJobName"]: job["TrainingJobStatus"] for job in jobs}


STOP = {"name": "StopTraining", "training_job_prefix": "ResNet"}


def test_the_only_job_is_stopped(cloud: str, caplog: pytest.LogCaptureFixture) -> None:
    start_jobs("InProgress", "ResNet-1", "my-ResNet-2", "resnet-3", "other")
    start_jobs("Completed", "ResNet-0")
    actions = Actions(json.dumps([STOP]), "VanishingGradient")
    actions.close(PATIENCE)
    assert set(states().values()) == {"InProgress", "Completed"}
    for _ in range(3):
        actions.invoke(FINDING)
    actions.close(PATIENCE)
    assert states() == {
        "ResNet-1": "Stopping", "my-ResNet-2": "InProgress", "resnet-3": "InProgress",
        "other": "InProgress", "ResNet-0": "Completed",
    }  # fmt: skip
    assert log_of(caplog) == [f"training job ResNet-1 was told to stop by {FINDING}"]


@pytest.mark.parametrize(
    ("jobs", "got"),
    [
        ([], "got none"),
        (["ResNet-1", "ResNet-2"], "got 2: ResNet-1, ResNet-2"),
        ([f"ResNet-{n}" for n in range(7)], "got 7: ResNet-0, ResNet-1, ResNet-2"),
    ],
)
def test_no_job_is_stopped_when_it_is_not_clear_which(
    cloud: str, jobs: list[str], got: str, caplog: pytest.LogCaptureFixture
) -> None:
    start_jobs("InProgress", *jobs, "other")
    action = StopTrainingAction("MyRule", "ResNet")
    action.invoke(FINDING)
    assert set(states().values()) == {"InProgress"}
    (message,) = log_of(caplog)
    assert "rule MyRule stops no training job" in message
    assert "'ResNet'" in message
    assert got in message
    # A job that comes later may be somebody else's.
    assert action.settled
    start_jobs("InProgress", "ResNet-9")
    action.invoke(FINDING)
    assert states()["ResNet-9"] == "InProgress"
    assert len(log_of(caplog)) == 1


def test_stopping_is_tried_again_when_aws_did_not_answer(
    cloud: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    start_jobs("InProgress", "ResNet-1")
    action = StopTrainingAction("MyRule", "ResNet")
    with monkeypatch.context() as patch, socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        patch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{bound.getsockname()[1]}")
        action.invoke(FINDING)
    assert log_of(caplog) == [
        "rule MyRule: StopTrainingAction(ResNet) failed: EndpointConnectionError"
    ]
    assert not action.settled
    action.invoke(FINDING)
    assert states() == {"ResNet-1": "Stopping"}


def test_a_prefix_of_nothing_would_be_every_job() -> None:
    with pytest.raises(SMDebugValueError, match="training_job_prefix must be a non-empty string"):
        StopTrainingAction("Rule", "")


# ---- messages


def mailbox(attribute: str, value: str) -> str:
    """A queue that gets what the topic has for a receiver; returns its address."""
    sns, sqs = boto3.client("sns"), boto3.client("sqs")
    topic = sns.create_topic(Name="SMDebugRules")["TopicArn"]
    url: str = sqs.create_queue(QueueName="mailbox")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]
    policy = json.dumps({attribute: [value]})
    sns.subscribe(
        TopicArn=topic, Protocol="sqs", Endpoint=arn["QueueArn"],
        Attributes={"FilterPolicy": policy, "RawMessageDelivery": "false"},
    )  # fmt: skip
    return url


def letters(url: str) -> list[dict[str, Any]]:
    got = boto3.client("sqs").receive_message(QueueUrl=url, MaxNumberOfMessages=10)
    return [json.loads(message["Body"]) for message in got.get("Messages", [])]


def subscriptions() -> list[tuple[str, str, Any]]:
    sns = boto3.client("sns")
    found = []
    for each in sns.list_subscriptions()["Subscriptions"]:
        attributes = sns.get_subscription_attributes(SubscriptionArn=each["SubscriptionArn"])
        policy = json.loads(attributes["Attributes"]["FilterPolicy"])
        found.append((each["Protocol"], each["Endpoint"], policy))
        assert each["TopicArn"].endswith(":SMDebugRules")
    return [each for each in found if each[0] != "sqs"]


@pytest.mark.parametrize(
    ("kind", "endpoint", "attribute"),
    [("email", EMAIL, "email"), ("sms", "+15550100", "phone_num")],
)
def test_a_message_is_sent(
    cloud: str, kind: str, endpoint: str, attribute: str, caplog: pytest.LogCaptureFixture
) -> None:
    url = mailbox(attribute, endpoint)
    actions = Actions(json.dumps({"name": kind.upper(), "endpoint": endpoint}), "MyRule")
    actions.close(PATIENCE)
    # Before anything is found: an address must be confirmed first.
    assert subscriptions() == [(kind, endpoint, {attribute: [endpoint]})]
    assert letters(url) == []
    actions.invoke(FINDING)
    actions.close(PATIENCE)
    (letter,) = letters(url)
    assert letter["Subject"] == "SMDebugRule:MyRule fired"
    assert letter["Message"] == (
        "SMDebugRule:MyRule fired. Step 40: gradient/fc.weight has vanished"
    )
    assert letter["MessageAttributes"] == {attribute: {"Type": "String", "Value": endpoint}}
    assert log_of(caplog) == []


def test_many_findings_are_two_messages(cloud: str) -> None:
    url = mailbox("email", EMAIL)
    actions = Actions({"name": "email", "endpoint": EMAIL}, "MyRule")
    for step in range(20):
        actions.invoke(Finding("MyRule", step, "m"))
    actions.close(PATIENCE)
    assert sorted(letter["Message"] for letter in letters(url)) == [
        "SMDebugRule:MyRule fired. Step 0: m",
        "SMDebugRule:MyRule fired. Step 19: m (and 18 more findings since the last message)",
    ]


def test_an_address_is_subscribed_once(cloud: str, caplog: pytest.LogCaptureFixture) -> None:
    entries = [{"name": "email", "endpoint": each} for each in (EMAIL, EMAIL.lower(), EMAIL)]
    with caplog.at_level(logging.INFO, "smdebug"):
        for rule in ("RuleA", "RuleB"):
            Actions(entries, rule).close(PATIENCE)
    assert sorted(each[1] for each in subscriptions()) == sorted([EMAIL, EMAIL.lower()])
    # SNS, unlike moto, would ask for confirmation again.
    assert log_of(caplog, logging.INFO) == [
        f"{shown_contact(each)} was subscribed to the SNS topic SMDebugRules"
        for each in (EMAIL, EMAIL.lower())
    ]


def test_a_message_is_for_its_receiver_only(cloud: str) -> None:
    url = mailbox("email", EMAIL)
    MessageAction("MyRule", "email", "somebody@example.org").invoke(FINDING)
    assert letters(url) == []


def test_a_long_name_is_cut_for_the_subject(cloud: str) -> None:
    url = mailbox("email", EMAIL)
    name = "Règle" + "x" * 200
    MessageAction(name, "email", EMAIL).invoke(FINDING)
    (letter,) = letters(url)
    assert letter["Subject"] == f"SMDebugRule:R?gle{'x' * 200}"[:100]
    assert letter["Message"].startswith(f"SMDebugRule:{name} fired. ")


def test_an_error_of_aws_is_logged(cloud: str, caplog: pytest.LogCaptureFixture) -> None:
    action = MessageAction("MyRule", "email", EMAIL)
    action.prepare()
    boto3.client("sns").delete_topic(TopicArn=action._topic)
    action.invoke(FINDING)
    (message,) = log_of(caplog)
    assert message.startswith(
        f"rule MyRule: MessageAction(email to {shown_contact(EMAIL)}) failed: AWS answered"
    )
    assert message.endswith(" to Publish")


@pytest.mark.parametrize("missing", ["AWS_ACCESS_KEY_ID", "AWS_DEFAULT_REGION"])
def test_what_aws_needs_is_missing(
    cloud: str, missing: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv(missing)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, "/nonexistent")
    with caplog.at_level(logging.DEBUG, "smdebug"):
        actions = Actions([{"name": "sms", "endpoint": "+15550100"}, STOP], "MyRule")
        actions.invoke(FINDING)
        actions.close(PATIENCE)
    log = log_of(caplog, logging.DEBUG)
    assert log
    assert all(" failed: " in message for message in log)
    assert not any(SECRET_KEY in message or "AKIA" in message for message in log)


def test_the_region_of_the_environment(cloud: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert aws.client("sns").meta.region_name == "eu-west-1"
    monkeypatch.setenv("AWS_REGION", "us-west-2")
    assert aws.client("sns").meta.region_name == "us-west-2"


def test_without_boto3_it_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    aws._say_it_is_missing.cache_clear()
    entries = [{"name": "sms", "endpoint": "+1"}, {"name": "email", "endpoint": EMAIL}, STOP]
    for rule in ("RuleA", "RuleB"):
        actions = Actions(entries, rule)
        actions.invoke(FINDING)
        actions.close(PATIENCE)
        assert len(actions.actions) == 3
        for action in actions.actions:
            action.prepare()
            action.invoke(FINDING)
    (message,) = log_of(caplog)
    assert "pip install 'tornasole[sagemaker]'" in message
    aws._say_it_is_missing.cache_clear()
