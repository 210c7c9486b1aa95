"""The actions of a rule."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from smdebug.exceptions import SMDebugValueError
from smdebug.rules.action.entries import entries_of
from smdebug.rules.action.failure import without_secrets
from smdebug.rules.action.message_action import MessageAction
from smdebug.rules.action.outbox import Outbox
from smdebug.rules.action.stop_training_action import StopTrainingAction
from smdebug.rules.action.webhook_action import WebhookAction

if TYPE_CHECKING:
    from smdebug.rules.action.base import Action
    from smdebug.storage.findings import Finding

logger = logging.getLogger("smdebug.rules")

DEFAULT_CLOSE_SECONDS = 10.0

# What each action must be told, and what it may be told.
_REQUIRED = {
    "stoptraining": "training_job_prefix",
    "email": "endpoint",
    "sms": "endpoint",
    "webhook": "endpoint",
}
_OPTIONS = {
    "stoptraining": set(),
    "email": {"min_interval"},
    "sms": {"min_interval"},
    "webhook": {"min_interval", "timeout", "headers"},
}
_KNOWN = ", ".join(f"{name} (needs {key})" for name, key in _REQUIRED.items())


class Actions:
    """Does what was asked for when a rule finds something.

    Everything is done on a thread of its own: `invoke` returns at once, and what fails is logged.
    The training job is stopped once. Messages come at once for the first finding, then at most one
    in `min_interval` seconds (60 when an action says nothing) with the newest finding and the
    number of those left out.

    Args:
        action_str: JSON text of an object or a list of objects, or the dicts themselves. Names and
            keys are taken in any case; addresses and prefixes stay as they are. An entry that is
            unknown or not complete is logged and skipped.
        rule_name: the rule.

    Raises:
        SMDebugValueError: the text is not JSON, or no object and no list.

    Example:
        >>> Actions('{"name": "webhook", "endpoint": "https://hooks.example.org/abc"}')
        Actions([WebhookAction(https://hooks.example.org/...)])
    """

    def __init__(self, action_str: Any = "", rule_name: str = "") -> None:
        self.rule_name = rule_name
        made = [self._made(entry) for entry in entries_of(action_str)]
        self.actions: list[Action] = [action for action in made if action is not None]
        self._outbox = Outbox(self.actions) if self.actions else None

    def invoke(self, finding: Finding) -> None:
        """Has every action told of a finding."""
        if self._outbox is not None:
            self._outbox.put(finding)

    def close(self, timeout: float = DEFAULT_CLOSE_SECONDS) -> None:
        """Sends what was held back, and waits until all is done, `timeout` seconds at most.

        The end of the program does the same for what is left. The actions stay usable.
        """
        left = self._outbox.drain(timeout) if self._outbox is not None else 0
        if left:
            logger.warning(
                "rule %s: %d uses of its actions were not done within %g seconds",
                self.rule_name, left, timeout,
            )  # fmt: skip

    def __repr__(self) -> str:
        return f"Actions({self.actions!r})"

    def _made(self, entry: Any) -> Action | None:
        try:
            return _action_of(entry, self.rule_name)
        except SMDebugValueError as error:
            logger.warning(
                "rule %s: an action is left out: %s; known actions: %s",
                self.rule_name, error, _KNOWN,
            )  # fmt: skip
            return None


def _action_of(entry: Any, rule_name: str) -> Action:
    if not isinstance(entry, Mapping):
        raise SMDebugValueError(f"it must be an object, got {without_secrets(entry)}")
    fields = {str(key).lower(): value for key, value in entry.items()}
    given = fields.pop("name", None)
    if given is None:
        raise SMDebugValueError("it has no 'name'")
    name = str(given).strip().lower()
    if name not in _REQUIRED:
        raise SMDebugValueError(f"its name is {without_secrets(given)}, which is none")
    if name == "webhook" and "endpoint" not in fields and "url" in fields:
        fields["endpoint"] = fields.pop("url")
    required = _REQUIRED[name]
    if fields.get(required) in (None, ""):
        raise SMDebugValueError(f"{name} has no {required!r}")
    ignored = sorted(set(fields) - {required} - _OPTIONS[name])
    if ignored:
        logger.warning(
            "rule %s: the action %s does not know %s", rule_name, name, ", ".join(ignored)
        )
    options = {key: fields[key] for key in _OPTIONS[name] if key in fields}
    if name == "stoptraining":
        return StopTrainingAction(rule_name, fields[required])
    if name == "webhook":
        return WebhookAction(rule_name, fields[required], **options)
    return MessageAction(rule_name, name, fields[required], **options)
