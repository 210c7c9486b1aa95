"""How a hook says what it cost."""

from __future__ import annotations

import pytest

from smdebug.hook.stats import CollectionStats, HookStats, format_bytes


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"), (1, "1 B"), (999, "999 B"), (1000, "1.0 kB"), (34_500, "34.5 kB"),
        (1_000_000, "1.0 MB"), (7_800_000_000, "7.8 GB"), (3 * 10**12, "3.0 TB"),
        (5 * 10**16, "50000.0 TB"),
    ],
)  # fmt: skip
def test_bytes_are_formatted_with_units(count: int, text: str) -> None:
    assert format_bytes(count) == text


def test_stats_are_formatted_on_one_line() -> None:
    stats = HookStats(steps=100, saved_steps=10, seconds=0.02, seconds_waited=1.26, bytes=5_000_000)
    assert str(stats) == (
        "10 of 100 steps saved, 5.0 MB; 0.20 ms a step in the training thread, 1.3 s waited"
    )


def test_stats_without_steps() -> None:
    assert str(HookStats()).startswith("0 of 0 steps saved, 0 B")


def test_stats_are_per_hook() -> None:
    first, second = HookStats(), HookStats()
    first.collections["a"] = CollectionStats(1, 2)
    assert second.collections == {}
