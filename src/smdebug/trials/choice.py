"""Which tensors of a trial somebody means, in the order in which training computes them."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

import numpy as np

from smdebug.config.collection import Collection, CollectionKeys
from smdebug.exceptions import SMDebugTypeError, SMDebugValueError
from smdebug.mode_keys import ModeKeys

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from smdebug.trials.trial import Trial

# At how many steps the order is looked for: tensors of one run may be saved at different ones.
_LOOKS = 6
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
        tensors: a name, or a regex that is looked for anywhere in a name, or several.
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
        return in_order(trial, _of_collection(trial, collection, known))
    given = [tensors] if isinstance(tensors, str) else list(tensors or ())
    if not given:
        raise SMDebugValueError(
            "tensors must be a name, a regex or a list of them, got an empty list"
        )
    found: dict[str, None] = {}
    for each in given:
        found.update(dict.fromkeys(_matching(trial, each, known, mode)))
    return in_order(trial, list(found))


def names_in(trial: Trial, mode: ModeKeys) -> list[str]:
    """The names of the tensors of a mode.

    Raises:
        SMDebugValueError: the run has no such mode.
    """
    modes = [each.name for each in trial.modes()]
    if not isinstance(mode, ModeKeys):
        raise SMDebugTypeError(
            f"mode must be one of modes.GLOBAL, {', '.join(f'modes.{name}' for name in modes)}; "
            f"got {mode!r}"
        )
    if mode is not ModeKeys.GLOBAL and mode.name not in modes:
        raise SMDebugValueError(
            f"mode must be GLOBAL or one that trial {trial.name} has ({', '.join(modes)}), "
            f"got {mode.name}"
        )
    return trial.tensor_names(mode=mode)


def course_names(trial: Trial, mode: ModeKeys) -> list[str]:
    """The losses; where there are none the metrics, and then the scalars.

    Raises:
        SMDebugValueError: there are none of them.
    """
    known = names_in(trial, mode)
    for key in _COURSES:
        collection = trial.collections().get(key)
        found = [name for name in known if collection is not None and collection.matches(name)]
        if found:
            return in_order(trial, found)
    some = ", ".join(known[:3]) + (", ..." if len(known) > 3 else "")
    raise SMDebugValueError(
        f"trial {trial.name} has no losses, metrics or scalars to plot; name tensors, as in "
        f"plot('gradient/', reduction='l2'). It has {len(known):,} tensors{some and f': {some}'}"
    )


def in_order(trial: Trial, names: Sequence[str]) -> list[str]:
    """Names in the order in which training computes them; those of unknown order come last."""
    missing = set(names)
    place: dict[str, tuple[int, int]] = {}
    steps = trial.steps()
    looks = np.unique(np.linspace(len(steps) - 1, 0, _LOOKS).astype(int))[::-1]
    for look, at in enumerate(looks.tolist() if steps else []):
        if not missing:
            break
        table = trial.rows_between(steps[at], steps[at] + 1, ["tensor", "position"])
        pairs = zip(table["tensor"].to_pylist(), table["position"].to_pylist(), strict=True)
        for name, position in pairs:
            if name in missing:
                place[name] = (look, position)
        missing.difference_update(place)
    return sorted(names, key=lambda name: (place.get(name, (_LOOKS, 0)), name))


def meant(given: str, known: Iterable[str]) -> str:
    """The end of a sentence that offers the nearest names."""
    near = difflib.get_close_matches(given, list(known), 3, cutoff=0.5)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def _of_collection(trial: Trial, given: str | Collection, known: list[str]) -> list[str]:
    if not isinstance(given, str | Collection):
        raise SMDebugTypeError(
            f"collection must be a name or a Collection, got {given!r} of type "
            f"{type(given).__name__}"
        )
    if given == CollectionKeys.ALL:
        return known
    collections = trial.collections()
    if isinstance(given, str) and given not in collections:
        raise SMDebugValueError(
            f"collection must be one of {', '.join(sorted(collections))}; got {given!r}"
            f"{meant(given, collections)}"
        )
    collection = collections[given] if isinstance(given, str) else given
    found = [name for name in known if collection.matches(name)]
    if not found:
        filled = [
            name for name, each in collections.items() if any(each.matches(one) for one in known)
        ]
        raise SMDebugValueError(
            f"the collection {collection.name} holds no tensor in trial {trial.name}; "
            f"those with tensors are {', '.join(sorted(filled)) or 'none'}"
        )
    return found


def _matching(trial: Trial, given: str, known: list[str], mode: ModeKeys) -> list[str]:
    if not isinstance(given, str):
        raise SMDebugTypeError(f"tensors must be names or regexes, got {given!r}")
    if given in known:
        return [given]
    try:
        pattern = re.compile(given)
    except re.error as error:
        raise SMDebugValueError(
            f"trial {trial.name} has no tensor {given!r}, and it is no regex: {error}"
            f"{meant(given, known)}"
        ) from error
    found = [name for name in known if pattern.search(name)]
    if not found:
        where = "" if mode is ModeKeys.GLOBAL else f" in mode {mode.name}"
        raise SMDebugValueError(
            f"no tensor of trial {trial.name}{where} is called {given!r} or matches it as a regex"
            f"{meant(given, known)}"
        )
    return found
