"""What the tests of rules share."""

from __future__ import annotations

import pytest

from smdebug.rules import Rule


@pytest.fixture(autouse=True)
def every_beginning_is_found(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lets the tests of single rules see every step at which a condition begins to hold.

    That a condition which wavers is one finding is the engine's business, and tested with it.
    """
    if not request.path.name.startswith("test_engine"):
        monkeypatch.setattr(Rule, "cooldown_steps", 1)
