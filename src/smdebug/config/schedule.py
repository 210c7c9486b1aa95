"""The collections of a mode by save schedule."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smdebug.config.collection import CollectionKeys
from smdebug.config.save_config import SaveConfig
from smdebug.mode_keys import ModeKeys

if TYPE_CHECKING:
    from collections.abc import Iterable

    from smdebug.config.collection import Collection
    from smdebug.config.save_config import SaveConfigMode

# Only training has these.
_TRAINING_ONLY = {CollectionKeys.GRADIENTS, CollectionKeys.OPTIMIZER_VARIABLES}


def by_schedule(
    collections: Iterable[Collection], mode: ModeKeys
) -> list[tuple[SaveConfigMode, list[Collection]]]:
    """Group the collections that a mode can have by save schedule; there are few schedules.

    Args:
        collections: collections; one without a schedule has the default one.
        mode: the mode.

    Example:
        >>> from smdebug.config.collection import Collection
        >>> found = by_schedule([Collection("gradients"), Collection("mine")], ModeKeys.EVAL)
        >>> [[each.name for each in group] for _, group in found]
        [['mine']]
    """
    groups: dict[SaveConfigMode, list[Collection]] = {}
    for collection in collections:
        if mode in (ModeKeys.EVAL, ModeKeys.PREDICT) and collection.name in _TRAINING_ONLY:
            continue
        config = collection.save_config or SaveConfig()
        groups.setdefault(config.get_save_config(mode), []).append(collection)
    return list(groups.items())
