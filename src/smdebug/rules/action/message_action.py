"""An e-mail or a text message through Amazon SNS."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

from smdebug.config import validation
from smdebug.exceptions import SMDebugValueError
from smdebug.rules.action import aws
from smdebug.rules.action.base import DEFAULT_MIN_INTERVAL, Action, told_with
from smdebug.rules.action.failure import reason, shown_contact

if TYPE_CHECKING:
    from smdebug.storage.findings import Finding

logger = logging.getLogger("smdebug.rules")

TOPIC = "SMDebugRules"
# The attribute of a message that says whom it is for, by the protocol of SNS.
_ATTRIBUTES = {"email": "email", "sms": "phone_num"}
# What SNS takes.
_LONGEST_SUBJECT = 100


class MessageAction(Action):
    """Sends findings to an address or a phone through the SNS topic `SMDebugRules`.

    The address is subscribed before anything is found: SNS delivers nothing to an e-mail address
    until its owner has confirmed.

    Args:
        rule_name: the rule whose findings are sent.
        message_type: `"email"` or `"sms"`.
        message_endpoint: the address or the number.
        min_interval: the least time between two messages, in seconds.

    Example:
        >>> MessageAction("VanishingGradient", "email", "me@example.org")
        MessageAction(email to m...@example.org)
    """

    prepares = True

    def __init__(
        self,
        rule_name: str,
        message_type: Any,
        message_endpoint: Any,
        min_interval: Any = DEFAULT_MIN_INTERVAL,
    ) -> None:
        super().__init__(rule_name, validation.seconds("min_interval", min_interval))
        kind = message_type.lower() if isinstance(message_type, str) else message_type
        self.message_type = validation.choice("message_type", kind, _ATTRIBUTES)
        if not isinstance(message_endpoint, str) or not message_endpoint.strip():
            # Not shown: somebody's address.
            given = type(message_endpoint).__name__
            raise SMDebugValueError(f"endpoint must be a non-empty string, got a {given}")
        self.message_endpoint = message_endpoint.strip()
        self._attribute = _ATTRIBUTES[self.message_type]
        self._topic = ""
        self._subscribed = False
        self._possible = aws.available()

    @property
    def target(self) -> str:
        return f"{self.message_type} to {shown_contact(self.message_endpoint)}"

    @property
    def settled(self) -> bool:
        return not self._possible

    def _prepare(self) -> None:
        if self._possible:
            self._connect()

    def _act(self, finding: Finding, left_out: int) -> None:
        if not self._possible:
            return
        client = self._connect()
        title = f"SMDebugRule:{self.rule_name or finding.rule} fired"
        text = told_with(f"{title}. Step {finding.step}: {finding.message}", left_out)
        client.publish(
            TopicArn=self._topic,
            Message=text,
            Subject=title.encode("ascii", "replace").decode()[:_LONGEST_SUBJECT],
            MessageAttributes={
                self._attribute: {"DataType": "String", "StringValue": self.message_endpoint}
            },
        )

    def _connect(self) -> Any:
        """Returns a client; the topic is there, and it is subscribed to if that is possible."""
        client = aws.client("sns")
        if not self._topic:
            self._topic = client.create_topic(Name=TOPIC)["TopicArn"]
        if not self._subscribed:
            # May be forbidden here and done already by somebody who may: messages are sent anyway.
            self._guarded(lambda: self._subscribe(client))
        return client

    def _subscribe(self, client: Any) -> None:
        if not self._is_subscribed(client):
            client.subscribe(
                TopicArn=self._topic,
                Protocol=self.message_type,
                Endpoint=self.message_endpoint,
                Attributes={"FilterPolicy": json.dumps({self._attribute: [self.message_endpoint]})},
            )
            shown = shown_contact(self.message_endpoint)
            logger.info("%s was subscribed to the SNS topic %s", shown, TOPIC)
        self._subscribed = True

    def _is_subscribed(self, client: Any) -> bool:
        # SNS asks for confirmation with every new subscription: once is enough for many rules.
        wanted = (self.message_type, self.message_endpoint)
        try:
            pages = client.get_paginator("list_subscriptions_by_topic").paginate(
                TopicArn=self._topic
            )
            there = [
                (each["Protocol"], each["Endpoint"]) for p in pages for each in p["Subscriptions"]
            ]
        except Exception as error:
            logger.debug("who is subscribed to %s is not known: %s", TOPIC, reason(error))
            return False
        return wanted in there
