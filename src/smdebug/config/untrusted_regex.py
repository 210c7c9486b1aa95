"""Regexes that somebody else wrote: whatever they are, looking for them takes bounded time.

Python's `re` goes back and tries again, which for a regex such as `(a+)+$` takes longer than
anybody lives. A run is other people's, and so are the regexes in it. They are parsed as `re` parses
them, and then all ways to match are followed at once, character by character, so that time grows
with the text and not with the number of ways. What was found out about a set of ways is remembered.
All regexes of a run share one number of steps; beyond it they match nothing.
"""

from __future__ import annotations

import copy
import importlib
import logging
import re
import sys
from typing import Any

from smdebug.config.validation import short_repr

_logger = logging.getLogger("smdebug.config")

# The parser of `re`, which has another name in Python 3.10.
_NEW = sys.version_info >= (3, 11)
_parser: Any = importlib.import_module("re._parser" if _NEW else "sre_parse")
_compiler: Any = importlib.import_module("re._compiler" if _NEW else "sre_compile")

# A regex of a person is a line; what is repeated {1000} times is a thousand states.
_LONGEST_REGEX = 2000
_MOST_STATES = 5000
# Some five seconds; three regexes that look into ten thousand names take a tenth of it.
_MOST_STEPS = 10_000_000
# What was found out is forgotten beyond this, and looked for again.
_MOST_KNOWN = 1 << 19
_MOST_SETS = 1 << 14

_ONE_CHARACTER = {"LITERAL", "NOT_LITERAL", "ANY", "IN"}
# Kinds of states: a character, ways to go on, a condition on the place in the text, the end.
_CHARACTER, _WAYS, _CONDITION, _END = range(4)

Ways = frozenset[int]


class Work:
    """How much may still be spent on the regexes of one run, and what is known already.

    Args:
        steps: how many steps may be made.
    """

    def __init__(self, steps: int = _MOST_STEPS) -> None:
        self.left = steps
        # Said once, not of every regex of thousands.
        self.told = False
        self.known: dict[tuple[str, str], bool] = {}

    def spend(self, steps: int) -> None:
        """Raises `_GivenUp` when nothing is left."""
        self.left -= steps
        if self.left < 0:
            raise _GivenUp("all regexes of the run take too long, and no more is looked for")


class ForeignRegex:
    """A regex of a run; has the one method of `re.Pattern` that collections use.

    One that cannot be followed matches nothing, and a warning says so, once: one that is none, has
    backreferences, is very long, or takes too long together with the others of the run.

    Args:
        regex: the regex.
        collection: the collection it is of, for the warning.
        work: shared by the regexes of a run.

    Example:
        >>> ForeignRegex("(a+)+$", "mine", Work()).search("a" * 50 + "b")
        False
    """

    def __init__(self, regex: str, collection: str, work: Work) -> None:
        self._regex, self._collection, self._work = regex, collection, work
        self._plan: _Plan | None = None
        self._given_up = False

    def search(self, text: str) -> bool:
        """Whether the regex is found anywhere in a text."""
        if self._given_up:
            return False
        key = (self._regex, text)
        found = self._work.known.get(key)
        if found is None:
            try:
                found = self._search(text)
            except (_GivenUp, re.error, OverflowError, RecursionError) as error:
                self._give_up(str(error) or type(error).__name__)
                return False
            if len(self._work.known) < _MOST_KNOWN:
                self._work.known[key] = found
        return found

    def _search(self, text: str) -> bool:
        self._work.spend(1 + len(text) // 16)
        if self._plan is None:
            self._plan = _Plan(self._regex, self._work)
        return self._plan.search(text)

    def _give_up(self, why: str) -> None:
        self._given_up, self._plan = True, None
        if self._work.left < 0:
            if self._work.told:
                return
            self._work.told = True
        _logger.warning(
            "collection %s: the regex %s of the run matches nothing here: %s",
            short_repr(self._collection), short_repr(self._regex), why,
        )  # fmt: skip


class _GivenUp(Exception):
    """A regex that is not followed, and why."""


class _Plan:
    """How to look for a regex: as a plain text where it is one, else by following all ways."""

    def __init__(self, regex: str, work: Work) -> None:
        if len(regex) > _LONGEST_REGEX:
            raise _GivenUp(f"it has {len(regex)} characters, expected at most {_LONGEST_REGEX}")
        work.spend(50 * len(regex))
        # What a regex warns of is its author's business.
        tree = _parsed(regex)
        items = _without_ends(list(tree))
        self._at_start = bool(items) and _is_start(items[0], tree)
        body = items[1:] if self._at_start else items
        names = {str(name) for name, _ in body}
        plain = names <= {"LITERAL"} and not tree.state.flags & re.IGNORECASE
        self._text = "".join(chr(value) for _, value in body) if plain else None
        self._automaton = None if plain else _Automaton(body, tree.state, work)

    def search(self, text: str) -> bool:
        if self._automaton is not None:
            return self._automaton.found(text, 0, anywhere=not self._at_start)
        assert self._text is not None
        return text.startswith(self._text) if self._at_start else self._text in text


def _parsed(regex: str) -> Any:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _parser.parse(regex)


def _without_ends(items: list[Any]) -> list[Any]:
    """Leaves out what may be nothing at both ends, such as `.*`: something else is looked for."""

    def is_optional(item: Any) -> bool:
        name, value = str(item[0]), item[1]
        if name not in ("MAX_REPEAT", "MIN_REPEAT") or value[0] != 0:
            return False
        return {str(inner) for inner, _ in value[2]} <= _ONE_CHARACTER

    while len(items) > 1 and is_optional(items[-1]):
        items.pop()
    while len(items) > 1 and is_optional(items[0]):
        items.pop(0)
    return items


def _is_start(item: Any, tree: Any) -> bool:
    return (str(item[0]), str(item[1])) == ("AT", "AT_BEGINNING") and not (
        tree.state.flags & re.MULTILINE
    )


def _with_flags(state: Any, flags: int) -> Any:
    """What the parser knows, with the flags of a group such as `(?i:...)`."""
    if flags == state.flags:
        return state
    changed = copy.copy(state)
    changed.flags = flags
    return changed


class _Automaton:
    """The states of a regex, and where each character leads.

    Args:
        items: the parsed regex, or a part of it.
        state: what the parser knows of the whole regex.
        work: what every step is taken from.
    """

    def __init__(self, items: Any, state: Any, work: Work) -> None:
        self._state, self._work = state, work
        # Of each state: its kind, what it asks for, and where it leads.
        self._kinds: list[int] = []
        self._asks: list[Any] = []
        self._next: list[tuple[int, ...]] = []
        self._conditions: list[Any] = []
        end = self._add(_END)
        self._first = frozenset([self._sequence(items, end)])
        self._closed: dict[Any, tuple[bool, Ways]] = {}
        self._asked: dict[Ways, tuple[int, ...]] = {}
        self._steps: dict[tuple[Ways, str], Ways] = {}

    # ---- building, from the end to the beginning

    def _add(self, kind: int, asks: Any = None, *following: int) -> int:
        if len(self._kinds) >= _MOST_STATES:
            raise _GivenUp(f"it needs more than {_MOST_STATES} states")
        self._work.spend(10)
        self._kinds.append(kind)
        self._asks.append(asks)
        self._next.append(following)
        return len(self._kinds) - 1

    def _sequence(self, items: Any, following: int) -> int:
        for item in reversed(list(items)):
            following = self._item(item, following)
        return following

    def _item(self, item: Any, following: int) -> int:
        name, value = str(item[0]), item[1]
        if name in _ONE_CHARACTER:
            return self._add(_CHARACTER, self._compiled(item), following)
        if name == "SUBPATTERN":
            _, added, removed, inner = value
            outside = self._state
            self._state = _with_flags(outside, (outside.flags | added) & ~removed)
            try:
                return self._sequence(inner, following)
            finally:
                self._state = outside
        if name == "BRANCH":
            ways = [self._sequence(inner, following) for inner in value[1]]
            return self._add(_WAYS, None, *ways)
        if name in ("MAX_REPEAT", "MIN_REPEAT"):
            least, most, inner = value
            return self._repeat(least, most, inner, following)
        if name == "AT":
            return self._condition(self._compiled(item).match, following)
        if name in ("ASSERT", "ASSERT_NOT"):
            return self._condition(self._look(value, name == "ASSERT"), following)
        raise _GivenUp(f"{name.lower().replace('_', ' ')} is not followed")

    def _repeat(self, least: int, most: Any, inner: Any, following: int) -> int:
        if str(most) == "MAXREPEAT":
            again = self._add(_WAYS)
            self._next[again] = (self._sequence(inner, again), following)
            following = again
        else:
            out = following
            for _ in range(int(most) - least):
                following = self._add(_WAYS, None, self._sequence(inner, following), out)
        for _ in range(least):
            following = self._sequence(inner, following)
        return following

    def _condition(self, holds: Any, following: int) -> int:
        self._conditions.append(holds)
        return self._add(_CONDITION, len(self._conditions) - 1, following)

    def _look(self, value: Any, wanted: bool) -> Any:
        """A look ahead or behind, as a condition on a place."""
        direction, inner = value
        automaton = _Automaton(inner, self._state, self._work)
        width = 0 if direction > 0 else int(inner.getwidth()[0])

        def holds(text: str, at: int) -> bool:
            inside = at >= width and automaton.found(text, at - width, anywhere=False)
            return inside == wanted

        return holds

    def _compiled(self, item: Any) -> Any:
        """One item by itself, as `re` understands it."""
        return _compiler.compile(_parser.SubPattern(self._state, [item]))

    # ---- looking

    def found(self, text: str, start: int, anywhere: bool) -> bool:
        """Whether it matches at a place of a text, or anywhere behind."""
        ways: Ways = self._first
        for at in range(start, len(text) + 1):
            ended, waiting = self._close(ways, text, at)
            if ended or at == len(text) or not (waiting or anywhere):
                self._work.spend(at - start + 1)
                return ended
            step = (waiting, text[at])
            known = self._steps.get(step)
            ways = self._step(*step) if known is None else known
            if anywhere:
                ways = ways | self._first if ways else self._first
        return False

    def _close(self, ways: Ways, text: str, at: int) -> tuple[bool, Ways]:
        """Whether the end is reached without another character, and which states wait for one."""
        asked = self._asked.get(ways)
        if asked is None:
            asked = self._keep(self._asked, ways, self._reach(ways, None)[2])
        if not asked:
            key: Any = ways
        else:
            self._work.spend(2 * len(asked))
            told = frozenset(each for each in asked if self._conditions[each](text, at))
            key = (ways, told)
        known = self._closed.get(key)
        if known is None:
            reached = self._reach(ways, key[1] if asked else frozenset())
            known = self._keep(self._closed, key, reached[:2])
        return known

    def _reach(self, ways: Ways, told: Ways | None) -> tuple[bool, Ways, tuple[int, ...]]:
        """What can be reached without a character, where some conditions hold; all of them if None.

        Returns:
            Whether the end is, the states that wait for a character, and the conditions met.
        """
        seen, waiting, asked, ended = set(ways), set(), set(), False
        rest = list(ways)
        while rest:
            state = rest.pop()
            kind = self._kinds[state]
            ended = ended or kind == _END
            if kind == _CONDITION:
                asked.add(self._asks[state])
                if told is not None and self._asks[state] not in told:
                    continue
            if kind == _CHARACTER:
                waiting.add(state)
            else:
                new = [each for each in self._next[state] if each not in seen]
                seen.update(new)
                rest += new
        self._work.spend(2 * len(seen))
        return ended, frozenset(waiting), tuple(asked)

    def _step(self, waiting: Ways, character: str) -> Ways:
        self._work.spend(2 * len(waiting))
        found = [self._next[state][0] for state in waiting if self._asks[state].match(character)]
        ways: Ways = self._keep(self._steps, (waiting, character), frozenset(found))
        return ways

    @staticmethod
    def _keep(known: dict[Any, Any], key: Any, value: Any) -> Any:
        if len(known) >= _MOST_SETS:
            known.clear()
        known[key] = value
        return value
