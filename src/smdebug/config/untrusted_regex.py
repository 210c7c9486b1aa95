"""Search with regexes from the files of a run, which may come from anyone, in bounded time.

`re` backtracks without limit: `(a+)+$` on a name of 50 characters never returns. The `regex`
package takes a timeout. A pattern must be valid for `re` and means the same to `regex`, except that
`regex` reads `{e}` as fuzzy matching and `[[:alpha:]]` as a POSIX class, and that `\\w`, `\\s` and
`(?i)` differ for some characters that are not printable ASCII (combining marks, U+001C to U+001F).
"""

from __future__ import annotations

import contextlib
import logging
import math
import re
import time
import warnings
from typing import Any

import regex

from smdebug.config.log import WarnOnce
from smdebug.config.validation import short_repr

_logger = logging.getLogger("smdebug.config")

# CPU time of all searches in a run, with an allowance for every name so that an honest run of
# any size stays within it: an ordinary search takes 2 us.
_SECONDS, _SECONDS_PER_NAME = 5.0, 0.0002
# CPU time of one search, and how many searches run before their time is added up.
_TIMEOUT, _CHUNK = 0.05, 64
_LONGEST_PATTERN = 2000
# `regex` writes out repeats when it compiles: a{1000} as 1000 nodes of about 260 bytes each.
_MOST_NODES = 200_000
_REPEAT = re.compile(r"\+|\{\s*(\d+)")

# Where a search may go on in more than one way. With one such place a search takes at most the
# square of the name's length.
_CHOICE = re.compile(r"[*+|]|(?<!\()\?")
_LONGEST_NAME = 500

# Results of searches; 0 where none was made yet.
_NO_MATCH, _MATCH = 1, 2


class UntrustedRegexes:
    """The regexes of one run, which share a budget of CPU time.

    Args:
        seconds: the budget, to which every tensor name adds 0.2 ms.

    Attributes:
        searches: how many searches were made; results are kept, so this is at most the number of
            names times the number of regexes.

    Example:
        >>> UntrustedRegexes().get("(a+)+$", "mine").matching(["x" * 50 + "a", "b"])
        ['xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxa']
    """

    def __init__(self, seconds: float = _SECONDS) -> None:
        self.searches = 0
        self._seconds_left = seconds
        self._warnings = WarnOnce(_logger)
        self._numbers: dict[str, int] = {}
        self._regexes: dict[str, UntrustedRegex] = {}

    def get(self, pattern: str, collection: str) -> UntrustedRegex:
        """Return the regex for a pattern; `collection` is named in warnings about it."""
        if pattern not in self._regexes:
            self._regexes[pattern] = UntrustedRegex(pattern, collection, self)
        return self._regexes[pattern]

    def number_names(self, names: list[str]) -> list[int]:
        """Return a number for each name, counted from 0 in the order they are first seen."""
        known, before = self._numbers, len(self._numbers)
        numbers = [known.setdefault(name, len(known)) for name in names]
        self._seconds_left += (len(known) - before) * _SECONDS_PER_NAME
        return numbers

    def spend(self, seconds: float, searches: int = 0) -> None:
        """Take CPU time from the budget."""
        self.searches += searches
        self._seconds_left -= seconds

    def is_exhausted(self, pattern: str, collection: str) -> bool:
        """Whether the budget is spent; the first time, a warning names the regex that is next."""
        if self._seconds_left > 0:
            return False
        self._warnings.warning(
            "exhausted",
            "Ignoring the regexes of the run from now on, beginning with %s of collection %s: "
            "together they take too long",
            short_repr(pattern), short_repr(collection),
        )  # fmt: skip
        return True


class UntrustedRegex:
    """A regex of a run; get it from `UntrustedRegexes`.

    It matches nothing, after one warning, if it is invalid, too large, or takes more than 0.05 s of
    CPU time to search a name.
    """

    def __init__(self, pattern: str, collection: str, regexes: UntrustedRegexes) -> None:
        self._pattern, self._collection, self._regexes = pattern, collection, regexes
        self._compiled: Any = None
        self._ignored = False
        self._is_quick = is_quick(pattern)
        # One byte per name: a run has millions of pairs of a regex and a name.
        self._results = bytearray()

    def search(self, name: str) -> bool:
        """Whether the regex is found anywhere in a name."""
        return bool(self.matching([name]))

    def matching(self, names: list[str]) -> list[str]:
        """Return the names in which the regex is found."""
        numbers = self._regexes.number_names(names)
        results = self._results
        results.extend(bytes(max(0, max(numbers, default=-1) + 1 - len(results))))
        pairs = list(zip(numbers, names, strict=True))
        new = [pair for pair in pairs if not results[pair[0]]]
        for first in range(0, len(new), _CHUNK):
            if self._ignored or self._regexes.is_exhausted(self._pattern, self._collection):
                break
            self._search(new[first : first + _CHUNK])
        return [name for number, name in pairs if results[number] == _MATCH and not self._ignored]

    def _search(self, pairs: list[tuple[int, str]]) -> None:
        # The CPU time of this thread: training in the same process does not count.
        begin = time.thread_time()
        try:
            self._compiled = self._compiled or _compile(self._pattern)
            search, results = self._compiled.search, self._results
            for number, name in pairs:
                try:
                    # With the GIL: a training thread may keep it for 5 ms once it is released.
                    if self._is_quick and len(name) <= _LONGEST_NAME:
                        found = search(name, concurrent=False)
                    else:
                        # Three times as slow: it reads the CPU clock.
                        found = search(name, timeout=_TIMEOUT, concurrent=False)
                except TimeoutError:
                    found = self._search_again(name, begin)
                results[number] = _NO_MATCH if found is None else _MATCH
        except (_Refused, re.error, regex.error, OverflowError, RecursionError) as error:
            self._ignored, self._compiled = True, None
            _logger.warning(
                "Collection %s: ignoring the regex %s of the run: %s",
                short_repr(self._collection), short_repr(self._pattern),
                str(error) or type(error).__name__,
            )  # fmt: skip
        self._regexes.spend(time.thread_time() - begin, len(pairs))

    def _search_again(self, name: str, begin: float) -> Any:
        """Search with longer timeouts, unless the search itself has taken the time since `begin`.

        `regex` counts the CPU time of the whole process, to which training on many cores adds.
        """
        for timeout in (8 * _TIMEOUT, 64 * _TIMEOUT):
            if time.thread_time() - begin > _TIMEOUT / 2:
                break
            begin = time.thread_time()
            with contextlib.suppress(TimeoutError):
                return self._compiled.search(name, timeout=timeout, concurrent=False)
        raise _Refused(f"searching {short_repr(name)} takes more than {_TIMEOUT} s")


def is_quick(pattern: str) -> bool:
    """Return whether every search takes a short time, so that it needs no timeout.

    Example:
        >>> is_quick("^(?!gradient).*weight"), is_quick("(a+)+$")
        (True, False)
    """
    # Braces may be fuzzy matching.
    return "{" not in pattern and len(_CHOICE.findall(pattern)) <= 1


class _Refused(Exception):
    """The reason why a regex is ignored."""


def _compile(pattern: str) -> Any:
    """Compile a pattern with `regex`.

    Raises:
        _Refused: it is too large.
        re.error, OverflowError, RecursionError: `re` cannot compile it.
    """
    if len(pattern) > _LONGEST_PATTERN:
        raise _Refused(f"it has {len(pattern)} characters, more than {_LONGEST_PATTERN}")
    # An upper bound: nested repeats multiply, and no more of them nest than there are groups.
    counts = [int(found[1]) + 1 if found[1] else 2 for found in _REPEAT.finditer(pattern)]
    nested = sorted(counts, reverse=True)[: pattern.count("(") + 1]
    if len(pattern) * math.prod(nested) > _MOST_NODES:
        raise _Refused("its nested repeats are too large")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        re.compile(pattern)
        return regex.compile(pattern, regex.V0, cache_pattern=False)
