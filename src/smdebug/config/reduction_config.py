"""What to save of a tensor: the tensor itself, its shape, reductions."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from smdebug.config import validation
from smdebug.config.lenient_json import parse_strictly
from smdebug.exceptions import SMDebugValueError
from smdebug.reductions import ALLOWED_NORMS, ALLOWED_REDUCTIONS, COUNTS, canonical_reduction

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

REDUCTION_FIELDS = ("reductions", "save_raw_tensor", "save_shape")
_KEYS = (*REDUCTION_FIELDS, "more_reductions")

# smdebug 1.0 checks the names in a collections file and refuses a run that has others.
_UNKNOWN_TO_SMDEBUG_1 = frozenset({"median", "abs_median", *COUNTS})


@dataclass(frozen=True, init=False, repr=False)
class ReductionConfig:
    """The reductions to save, and whether the tensor and its shape are saved as well.

    Args:
        reductions: of `min, max, mean, std, variance, sum, prod, median`, and the counts `nans,
            infs, zeros`.
        abs_reductions: the same, except for the counts, of the absolute values.
        norms: of `l1, l2`.
        abs_norms: norms of the absolute values.
        save_raw_tensor: save the tensor itself as well.
        save_shape: save its shape.

    Attributes:
        names: all reductions as the index spells them: reductions, norms, abs_reductions,
            abs_norms.

    Raises:
        SMDebugValueError: a name is unknown, or a flag is not a bool.

    Example:
        >>> ReductionConfig(reductions=["min"], abs_reductions=["max"], norms=["l2"]).names
        ('min', 'l2', 'abs_max')
    """

    names: tuple[str, ...]
    save_raw_tensor: bool
    save_shape: bool

    def __init__(
        self,
        reductions: Iterable[str] | None = None,
        abs_reductions: Iterable[str] | None = None,
        norms: Iterable[str] | None = None,
        abs_norms: Iterable[str] | None = None,
        save_raw_tensor: bool = False,
        save_shape: bool = False,
    ) -> None:
        names = (
            *_checked("reductions", reductions, (*ALLOWED_REDUCTIONS, *COUNTS)),
            *_checked("norms", norms, ALLOWED_NORMS),
            *_checked("abs_reductions", abs_reductions, ALLOWED_REDUCTIONS),
            *_checked("abs_norms", abs_norms, ALLOWED_NORMS),
        )
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "save_raw_tensor", _flag("save_raw_tensor", save_raw_tensor))
        object.__setattr__(self, "save_shape", _flag("save_shape", save_shape))

    @property
    def reductions(self) -> list[str]:
        """The reductions of the values, counts included."""
        return [name for name in self.names if name in (*ALLOWED_REDUCTIONS, *COUNTS)]

    @property
    def norms(self) -> list[str]:
        """The norms."""
        return [name for name in self.names if name in ALLOWED_NORMS]

    @property
    def abs_reductions(self) -> list[str]:
        """The reductions of the absolute values, without their `abs_`."""
        return [name for name in self._abs_names() if name in ALLOWED_REDUCTIONS]

    @property
    def abs_norms(self) -> list[str]:
        """The norms of the absolute values, without their `abs_`."""
        return [name for name in self._abs_names() if name in ALLOWED_NORMS]

    def _abs_names(self) -> list[str]:
        return [name.removeprefix("abs_") for name in self.names if name.startswith("abs_")]

    @classmethod
    def from_dict(cls, params: Mapping[str, Any] | None) -> ReductionConfig | None:
        """Make a ReductionConfig from a dict as JSON holds it; None stays None.

        Args:
            params: `reductions` (and `more_reductions`) as a comma string or a list of names, with
                `abs_` in front for absolute values, norms as `l1` or `l1_norm`; `save_raw_tensor`
                and `save_shape` as bools.

        Example:
            >>> ReductionConfig.from_dict({"reductions": "min, abs_max, l2_norm"}).names
            ('min', 'l2', 'abs_max')
        """
        if params is None:
            return None
        params = validation.mapping("reduction_config", params)
        validation.unknown_keys(params, _KEYS)
        groups: dict[str, list[str]] = {}
        for key in ("reductions", "more_reductions"):
            for name in validation.comma_list(key, params.get(key)):
                groups.setdefault(_group_of(name), []).append(name.removeprefix("abs_"))
        return cls(
            **groups,
            save_raw_tensor=params.get("save_raw_tensor", False),
            save_shape=params.get("save_shape", False),
        )

    @classmethod
    def from_json(cls, json_str: str) -> ReductionConfig | None:
        """Read what `to_json` wrote."""
        return cls.from_dict(parse_strictly("reduction_config", json_str))

    def to_json_dict(self) -> dict[str, Any]:
        """Return a dict that smdebug 1.0 can read.

        Reductions that smdebug 1.0 lacks are in `more_reductions`, which it ignores.
        """
        fields: dict[str, Any] = {
            "save_raw_tensor": self.save_raw_tensor,
            "reductions": ",".join(
                f"{name}_norm" if name.removeprefix("abs_") in ALLOWED_NORMS else name
                for name in self.names
                if name not in _UNKNOWN_TO_SMDEBUG_1
            ),
            "save_shape": self.save_shape,
        }
        more = [name for name in self.names if name in _UNKNOWN_TO_SMDEBUG_1]
        if more:
            fields["more_reductions"] = ",".join(more)
        return fields

    def to_json(self) -> str:
        """Return `to_json_dict` as JSON."""
        return json.dumps(self.to_json_dict())

    def __repr__(self) -> str:
        lists = ("reductions", "abs_reductions", "norms", "abs_norms")
        given = [f"{key}={getattr(self, key)!r}" for key in lists if getattr(self, key)]
        flags = [f"{key}=True" for key in ("save_raw_tensor", "save_shape") if getattr(self, key)]
        return f"ReductionConfig({', '.join(given + flags)})"


def _checked(key: str, value: Iterable[str] | None, allowed: tuple[str, ...]) -> list[str]:
    """Return canonical names, each once; those that smdebug 1.0 lacks come last.

    They have a key of their own in JSON, so only this order survives writing and reading.
    """
    names: dict[str, None] = {}
    given = sorted(value) if isinstance(value, set | frozenset) else value
    for name in validation.comma_list(key, given):
        plain = name.removesuffix("_norm") if allowed is ALLOWED_NORMS else name
        if plain not in allowed:
            near = validation.did_you_mean(name, allowed)
            raise SMDebugValueError(
                f"Unknown name {validation.short_repr(name)} in {key}. Choose from "
                f"{', '.join(allowed)}.{near}"
            )
        names[canonical_reduction(plain, abs=key.startswith("abs_"))] = None
    return sorted(names, key=_UNKNOWN_TO_SMDEBUG_1.__contains__)


def _group_of(name: str) -> str:
    plain = name.removeprefix("abs_")
    group = "norms" if plain.removesuffix("_norm") in ALLOWED_NORMS else "reductions"
    return f"abs_{group}" if name.startswith("abs_") else group


def _flag(key: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise SMDebugValueError(f"{key} must be True or False, got {validation.short_repr(value)}")
    return value
