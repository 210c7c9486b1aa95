"""placeholder"""

from __future__ import annotations

from typing import Any

from smdebug.storage.findings import Finding


class Actions:
    def __init__(self, actions: Any = "", rule_name: str = "") -> None:
        self.actions: list[Any] = []

    def invoke(self, finding: Finding) -> None:
        return
