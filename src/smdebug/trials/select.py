"""Which tensors of a trial somebody means, by a text or a collection, and their order."""

from __future__ import annotations

import difflib
import fnmatch
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from smdebug.config.collection import Collection, CollectionKeys
from smdebug.exceptions import (
    InvalidWorker,
    SMDebugTypeError,
    SMDebugValueError,
    TensorUnavailable,
)
from smdebug.mode_keys import ModeKeys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smdebug.trials.trial import Trial

# At how many steps the order is looked for: tensors of one run may be saved at different ones.
_LOOKS = 6
# What is offered is at least so similar to what was given.
_NEAR = 0.5
# How `re` says that it cannot compile a text.
_NO_REGEX = (re.error, OverflowError, RecursionError)
# Where the numbers that tell how training goes are, the best first.
_COURSES = (CollectionKeys.LOSSES, CollectionKeys.METRICS, CollectionKeys.SCALARS)


def chosen(
    trial: Trial,
    tensors: str | Iterable[str] | None,
    collection: str | Collection | None,
    mode: ModeKeys,
) -> list[str]:
    """The names of the tensors that are meant, in the order of computation.

    Args:
        trial: the trial.
        tensors: a name, a shell pattern, a regex that is looked for anywhere in a name, or several.
        collection: a collection instead.
        mode: only tensors saved in this mode.

    Raises:
        SMDebugValueError: nothing has such a name; the nearest names are offered.
    """
    if (tensors is None) == (collection is None):
        raise SMDebugValueError(
            "either tensors or collection must be given, got "
            f"tensors={tensors!r} and collection={collection!r}"
        )
    known = names_in(trial, mode)
    if collection is not None:
        return in_order(trial, _filled(trial, collection, known))
    if not isinstance(tensors, str | Iterable):
        raise SMDebugTypeError(
            "tensors must be a name, a shell pattern, a regex or a list of them, got "
            f"{tensors!r} of type {type(tensors).__name__}"
        )
    given = [tensors] if isinstance(tensors, str) else list(tensors)
    if not given:
        raise SMDebugValueError(
            "tensors must be a name, a shell pattern, a regex or a list of them, got an empty list"
        )
    found: dict[str, None] = {}
    for each in given:
        found.update(dict.fromkeys(_named(trial, each, known, mode)))
    return in_order(trial, list(found))


def resolve_pattern(known: Iterable[str], text: str) -> list[str]:
    """The names that a text means: exactly, by a shell pattern, or by a regex found in them.

    Example:
        >>> resolve_pattern(["fc.bias", "gradient/fc10", "gradient/fc2"], "gradient/*")
        ['gradient/fc2', 'gradient/fc10']

    Raises:
        TensorUnavailable: it means none; the nearest names are offered.
    """
    names = list(known)
    if text in names:
        return [text]
    found = fnmatch.filter(names, text)
    if not found and not _why_no_regex(text):
        found = [name for name in names if re.search(text, name)]
    if not found:
        raise TensorUnavailable(text, tuple(nearest(text, names)))
    return sorted(found, key=natural)


def natural(name: str) -> list[tuple[bool, int, str]]:
    """How names are sorted: `layer2` comes before `layer10`."""
    parts = re.split(r"([0-9]{1,4000})", name)  # Python takes no longer numbers
    return [(each.isdecimal(), int(each) if each.isdecimal() else 0, each) for each in parts]


def regex_of(called: str, text: str | None) -> re.Pattern[str] | None:
    """What a text that can only be a regex stands for; None where there is none.

    Args:
        called: what the user calls it.
        text: what was given.

    Raises:
        SMDebugValueError: it is none.
    """
    try:
        return None if text is None else re.compile(text)
    except _NO_REGEX as error:
        raise SMDebugValueError(
            f"{called} must be a regular expression, got {text!r}: {error}"
        ) from error


def filter_by_collection(
    trial: Trial, given: str | Collection, known: Iterable[str], called: str = "collection"
) -> list[str]:
    """Those of some names that a collection holds; `all` holds all of them.

    Args:
        trial: the trial.
        given: the collection, or its name.
        known: the names.
        called: what the user calls it.

    Raises:
        SMDebugValueError: the trial has no such collection; the nearest are offered.
    """
    if not isinstance(given, str | Collection):
        raise SMDebugTypeError(
            f"{called} must be a name or a Collection, got {given!r} of type {type(given).__name__}"
        )
    if given == CollectionKeys.ALL:
        return list(known)
    collections = trial.collections()
    if isinstance(given, str) and given not in collections:
        raise SMDebugValueError(
            f"{called} must be one of {', '.join(sorted(collections))}, got {given!r}"
            f"{meant(given, collections)}"
        )
    collection = collections[given] if isinstance(given, str) else given
    return collection.filter(known)


def names_in(trial: Trial, mode: ModeKeys) -> list[str]:
    """The names of the tensors of a mode.

    Raises:
        SMDebugValueError: the run has no such mode.
    """
    modes = [each.name for each in trial.modes()]
    if not isinstance(mode, ModeKeys):
        raise SMDebugTypeError(
            f"mode must be one of {', '.join(f'modes.{name}' for name in ['GLOBAL', *modes])}; "
            f"got {mode!r}"
        )
    if mode is not ModeKeys.GLOBAL and mode.name not in modes:
        raise SMDebugValueError(
            f"mode must be GLOBAL or one that trial {trial.name} has "
            f"({', '.join(modes) or 'none'}), got {mode.name}"
        )
    return trial.tensor_names(mode=mode)


def require_worker(trial: Trial, worker: str | None) -> None:
    """Raises `InvalidWorker` when a trial has no worker of this name."""
    known = trial.workers()
    if worker is not None and worker not in known:
        raise InvalidWorker(worker, tuple(known))


def default_curve_names(trial: Trial, mode: ModeKeys) -> list[str]:
    """The losses; where there are none the metrics, and then the scalars.

    Raises:
        SMDebugValueError: there are none of them.
    """
    known = names_in(trial, mode)
    for key in _COURSES:
        collection = trial.collections().get(key)
        found = [] if collection is None else collection.filter(known)
        if found:
            return in_order(trial, found)
    some = ", ".join(known[:3]) + (", ..." if len(known) > 3 else "")
    raise SMDebugValueError(
        f"trial {trial.name} has no losses, metrics or scalars to plot; name tensors, as in "
        f"plot('gradient/', reduction='l2'). It has {len(known):,} tensors{some and f': {some}'}"
    )


def in_order(trial: Trial, names: Sequence[str]) -> list[str]:
    """Names in the order in which training computes them; those of unknown order come last."""
    missing = dict.fromkeys(names)
    place: dict[str, tuple[int, int]] = {}
    for look in range(_LOOKS):
        # Where one of them was saved, most of them were.
        step = _last_step(trial, next(iter(missing))) if missing else None
        if step is None:
            break
        table = trial.rows_between(step, step + 1, ["tensor", "position"])
        pairs = zip(table["tensor"].to_pylist(), table["position"].to_pylist(), strict=True)
        for name, position in pairs:
            if name in missing:
                place[name] = (look, position)
        missing = {name: None for name in missing if name not in place}
    return sorted(names, key=lambda name: (place.get(name, (_LOOKS, 0)), name))


def _last_step(trial: Trial, name: str) -> int | None:
    steps = trial.tensor(name).steps(show_incomplete_steps=True)
    return steps[-1] if steps else None


def nearest(given: str, known: Iterable[str], most: int = 3) -> list[str]:
    """The names that may have been meant, the most similar first."""
    spellings: dict[str, list[str]] = {}
    for name in known:
        spellings.setdefault(name.lower(), []).append(name)
    near = difflib.get_close_matches(given.lower(), spellings, most, cutoff=_NEAR)
    return [name for each in near for name in spellings[each]][:most]


def meant(given: str, known: Iterable[str]) -> str:
    """The end of a sentence that offers the nearest names."""
    near = nearest(given, known)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def _filled(trial: Trial, given: str | Collection, known: list[str]) -> list[str]:
    """What a collection holds, which must be something."""
    found = filter_by_collection(trial, given, known)
    if not found:
        filled = [name for name, each in trial.collections().items() if each.filter(known)]
        name = given if isinstance(given, str) else given.name
        raise SMDebugValueError(
            f"the collection {name} holds no tensor in trial {trial.name}; "
            f"those with tensors are {', '.join(sorted(filled)) or 'none'}"
        )
    return found


def _named(trial: Trial, given: str, known: list[str], mode: ModeKeys) -> list[str]:
    if not isinstance(given, str):
        raise SMDebugTypeError(f"tensors must be names or regexes, got {given!r}")
    try:
        return resolve_pattern(known, given)
    except TensorUnavailable as error:
        where = "" if mode is ModeKeys.GLOBAL else f" in mode {mode.name}"
        why = _why_no_regex(given)
        raise SMDebugValueError(
            f"no tensor of trial {trial.name}{where} is called {given!r}, or matches it as a "
            f"shell pattern{f', and it is no regex: {why}' if why else ' or a regex'}"
            f"{meant(given, known)}"
        ) from error


def _why_no_regex(text: str) -> str:
    """What `re` says of a text that it cannot compile; nothing of others."""
    try:
        re.compile(text)
    except _NO_REGEX as error:
        return str(error) or type(error).__name__
    return ""
