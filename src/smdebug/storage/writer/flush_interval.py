"""How often a run publishes: often when it is young, less often as it grows older."""

from __future__ import annotations

# How old the oldest unpublished step may get: at first, and at most.
_FLUSH_LOCAL, _FLUSH_REMOTE = (1.0, 30.0), (10.0, 60.0)
# The age of a run over this is how long its steps may wait, up to the most: until then every
# doubling of a run's age adds the same number of segments.
_AGE_SHARE = 500


def flush_interval(age: float, remote: bool, flush_seconds: float | None = None) -> float:
    """How long a finished step may wait to be published, in a run of this age.

    Example:
        >>> flush_interval(0, remote=False), flush_interval(5000, remote=False)
        (1.0, 10.0)
    """
    if flush_seconds is not None:
        return flush_seconds
    first, most = _FLUSH_REMOTE if remote else _FLUSH_LOCAL
    return max(first, min(age / _AGE_SHARE, most))
