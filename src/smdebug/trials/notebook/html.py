"""What a notebook shows of a trial and of a tensor.

It is made of inline styles alone and takes the colours of the page, by day and by night. Whatever
comes from a run is escaped. It never raises: what is damaged is said in its place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from smdebug.config.collection import CollectionKeys
from smdebug.exceptions import SMDebugError
from smdebug.markup import cut, escape, tag
from smdebug.mode_keys import ModeKeys
from smdebug.reductions import REDUCTION_NAMES
from smdebug.storage.arrow import from_numpy, to_numpy
from smdebug.storage.format.dtypes import dtype_of
from smdebug.storage.raw_tensors import VALUE_COLUMNS
from smdebug.storage.segment_summary import mode_numbers, one_array
from smdebug.trials.curves import PREFERRED
from smdebug.trials.notebook.sparkline import sparkline
from smdebug.trials.run_summary import state_of
from smdebug.trials.value_stats import elements_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from smdebug.trials.curves import Floats
    from smdebug.trials.frame import Frame
    from smdebug.trials.tensor import Tensor
    from smdebug.trials.trial import Trial

_MOST_TENSORS = 20
_MOST_FINDINGS = 8
_MOST_LOSSES = 4
_MOST_COLLECTIONS = 12
_NAME = 72
# The columns, and the first and last rows, that are shown of a frame.
_FRAME_COLUMNS, _FRAME_ROWS = 8, 5
# A value of more bytes is not read for a summary.
_MOST_BYTES = 64 << 20

_LINE = "1px solid rgba(128,128,128,.35)"
_CELL = f"text-align:left;padding:2px 14px 2px 0;border:0;border-bottom:{_LINE};vertical-align:top"
_QUIET = "opacity:.7"


def trial_html(trial: Trial) -> str:
    """A trial: what it is, how it goes, what was found, its first tensors."""
    rows = {
        "path": lambda: escape(trial.path),
        "steps": lambda: _steps(trial),
        "workers": lambda: _few(trial.known_workers(), 8),
        "collections": lambda: _collections(trial),
        "findings": lambda: _findings(trial),
        "losses": lambda: _losses(trial),
    }
    return _page(
        f"Trial {cut(trial.name, _NAME)}", _caught(lambda: state_of(trial.store)), rows,
        lambda: _tensors(trial),
    )  # fmt: skip


def tensor_html(tensor: Tensor) -> str:
    """A tensor: what was saved of it, and its last value."""
    rows = {
        "trial": lambda: escape(tensor.trial.name),
        "steps": lambda: _tensor_steps(tensor),
        "shape": lambda: _shape(tensor),
        "course": lambda: _course(tensor),
        "last value": lambda: _value(tensor),
        "saved reductions": lambda: _reductions(tensor),
    }
    return _page(f"Tensor {cut(tensor.name, _NAME)}", "", rows, lambda: "")


def frame_html(frame: Frame, names: list[str]) -> str:
    """Return a frame as a table: its first and last steps, and its first columns."""
    shown, more = names[:_FRAME_COLUMNS], len(names) - _FRAME_COLUMNS
    head = ["step", *(cut(name, _NAME) for name in shown), *(["..."] if more > 0 else [])]
    rows = [tag("tr", "".join(tag("th", escape(name), style=_CELL) for name in head))]
    places = list(range(len(frame)))
    if len(frame) > 2 * _FRAME_ROWS:
        places = [*places[:_FRAME_ROWS], -1, *places[-_FRAME_ROWS:]]
    for row in places:
        cells = ["..."] * len(head)
        if row >= 0:
            cells = [str(frame.steps[row]), *(_cell(frame, row, c) for c in range(len(shown)))]
            cells += ["..."] if more > 0 else []
        rows.append(tag("tr", "".join(tag("td", escape(cell), style=_CELL) for cell in cells)))
    title = tag("strong", escape(repr(frame).strip("<>")))
    return tag("div", title + tag("table", "".join(rows)))


def _cell(frame: Frame, row: int, column: int) -> str:
    return f"{frame.values[row, column]:.6g}" if frame.present[row, column] else ""


# ---- the parts of a page


def _page(
    title: str, beside: str, rows: dict[str, Callable[[], str]], below: Callable[[], str]
) -> str:
    head = tag("strong", escape(title), style="font-size:1.1em")
    if beside:
        head += tag("span", beside, style=f"margin-left:10px;{_QUIET}")
    lines = [
        tag("tr", tag("td", escape(name), style=f"{_CELL};{_QUIET}")
            + tag("td", _caught(make), style=_CELL))
        for name, make in rows.items()
    ]  # fmt: skip
    table = _table("".join(lines))
    return tag("div", tag("div", head) + table + _caught(below), style="line-height:1.5")


def _table(content: str) -> str:
    style = "border-collapse:collapse;border:0;margin:4px 0 8px;font-size:.95em"
    return tag("table", tag("tbody", content), style=style)


def _caught(make: Callable[[], str]) -> str:
    """A part of the page; where it cannot be made, why."""
    try:
        return make()
    except Exception as error:  # A notebook must not fail for a damaged file.
        kind = "" if isinstance(error, SMDebugError) else f"{type(error).__name__}: "
        words = f"cannot be read: {kind}{cut(error, 300)}"
        return tag("span", escape(words), style="color:#ef4444")


def _few(names: Sequence[object], most: int) -> str:
    shown = ", ".join(escape(cut(name, _NAME)) for name in names[:most])
    return f"{len(names):,}: {shown}{', ...' if len(names) > most else ''}" if names else "none"


def _quiet(text: str) -> str:
    return tag("span", escape(text), style=_QUIET)


# ---- a trial


def _steps(trial: Trial) -> str:
    parts = [_span(trial.steps(show_incomplete_steps=True))]
    modes = trial.modes()
    if modes:
        counts = (f"{mode.name} {len(trial.steps(mode, True)):,}" for mode in modes)
        parts.append(_quiet(f"({', '.join(counts)})"))
    return " ".join(parts)


def _span(steps: Any) -> str:
    if not len(steps):
        return "none"
    return f"{len(steps):,}, from {steps[0]:,} to {steps[-1]:,}"


def _collections(trial: Trial) -> str:
    names = _names(trial)
    parts = []
    for key, collection in sorted(trial.collections().items()):
        count = sum(map(collection.matches, names))
        if count and key != CollectionKeys.ALL:
            parts.append(f"{escape(cut(key, 40))} {_quiet(f'{count:,}')}")
    more = len(parts) - _MOST_COLLECTIONS
    return ", ".join(parts[:_MOST_COLLECTIONS]) + (f", {more} more" if more > 0 else "") or "none"


def _findings(trial: Trial) -> str:
    found = trial.findings()
    lines = [
        tag("div", f"{tag('b', escape(cut(each.rule, 40)))}, step {each.step:,}: "
            f"{escape(cut(each.message, 200))}")
        for each in found[:_MOST_FINDINGS]
    ]  # fmt: skip
    if len(found) > _MOST_FINDINGS:
        lines.append(_quiet(f"and {len(found) - _MOST_FINDINGS:,} more"))
    return "".join(lines) or _quiet("none")


def _losses(trial: Trial) -> str:
    collection = trial.collections().get(CollectionKeys.LOSSES)
    names = [] if collection is None else collection.filter(_names(trial))
    if not names:
        return _quiet("none were saved")
    lines = [
        line for name in names[:_MOST_LOSSES] for line in _by_mode(trial, name, ("value", "mean"))
    ]
    if len(names) > _MOST_LOSSES:
        lines.append(_quiet(f"and {len(names) - _MOST_LOSSES:,} more"))
    return "".join(lines[: 2 * _MOST_LOSSES]) or _quiet("not in the index; plot() reads them")


def _tensors(trial: Trial) -> str:
    names = _names(trial)
    steps = trial.steps(show_incomplete_steps=True)
    kinds: dict[str, str] = {}
    for step in {steps[0], steps[-1]} if steps else ():
        table = trial.rows_between(step, step + 1, ["tensor", "dtype", "shape"])
        columns = [table[name].to_pylist() for name in ("tensor", "dtype", "shape")]
        kinds |= {name: _kind(dtype, shape) for name, dtype, shape in zip(*columns, strict=True)}
    lines = [
        tag("tr", tag("td", escape(cut(name, _NAME)), style=_CELL)
            + tag("td", kinds.get(name, ""), style=f"{_CELL};{_QUIET}"))
        for name in names[:_MOST_TENSORS]
    ]  # fmt: skip
    count = "1 tensor" if len(names) == 1 else f"{len(names):,} tensors"
    more = f"; the first {_MOST_TENSORS}" if len(names) > _MOST_TENSORS else ""
    return tag("div", escape(f"{count}{more}"), style=_QUIET) + _table("".join(lines))


def _names(trial: Trial) -> list[str]:
    return trial.tensor_names()


# ---- a tensor


def _tensor_steps(tensor: Tensor) -> str:
    table = tensor.trial.rows(tensor.name, ["step", "mode"])
    steps, first = np.unique(to_numpy(table["step"]), return_index=True)
    modes = mode_numbers(one_array(table["mode"]))[first]
    found = [(mode, int((modes == mode.value).sum())) for mode in ModeKeys]
    counts = ", ".join(
        f"{mode.name} {count:,}" for mode, count in found if count and mode is not ModeKeys.GLOBAL
    )
    return _span(steps) + (f" {_quiet(f'({counts})')}" if counts else "")


def _last(tensor: Tensor, columns: Sequence[str]) -> Any:
    """What the index says of its last step, a row; none when nothing was saved."""
    steps = to_numpy(tensor.trial.rows(tensor.name, ["step"])["step"])
    last = int(steps.max(initial=-1))
    wanted = list(dict.fromkeys(["step", *columns]))
    table = tensor.trial.rows(tensor.name, wanted, {last})
    return table.filter(from_numpy(to_numpy(table["step"]) == last)).slice(0, 1)


def _shape(tensor: Tensor) -> str:
    rows = _last(tensor, ["dtype", "shape"]).to_pylist()
    return _kind(rows[0]["dtype"], rows[0]["shape"]) if rows else "unknown"


def _reductions(tensor: Tensor) -> str:
    rows = _last(tensor, REDUCTION_NAMES).to_pylist()
    row = rows[0] if rows else {"step": 0}
    at = _quiet(f"at step {row['step']:,}")
    saved = [f"{name} {row[name]:.4g}" for name in REDUCTION_NAMES if row.get(name) is not None]
    return f"{', '.join(saved)} {at}" if saved else _quiet("none")


def _kind(dtype: str | None, shape: list[int] | None) -> str:
    if shape is None:
        return escape(dtype or "unknown")
    size = "number" if not shape else " x ".join(f"{length:,}" for length in shape)
    return escape(f"{size}, {dtype or 'unknown'}")


def _course(tensor: Tensor) -> str:
    return "".join(_by_mode(tensor.trial, tensor.name, ("value", *PREFERRED))) or _quiet(
        "only raw values were saved; plot(reduction='l2') computes from them"
    )


def _value(tensor: Tensor) -> str:
    table = _last(tensor, VALUE_COLUMNS)
    if not table.num_rows:
        return "none"
    (row,) = table.to_pylist()
    at = _quiet(f"at step {row['step']:,}")
    if (row["length"] or 0) > _MOST_BYTES:
        return _quiet(f"{row['length']:,} bytes: too many for a summary")
    (array,) = tensor.trial.row_values(table, tensor.name)
    if array is None:
        return f"{_quiet('not saved')} {at}"
    one = array.size == 1
    words = str(array.reshape(-1)[0]) if one else elements_of(array, tensor.name, 0).summary()
    return f"{escape(cut(words, 200))} {at}"


# ---- curves


def _by_mode(trial: Trial, name: str, columns: Iterable[str]) -> list[str]:
    """Sparklines of the first column that holds anything, one for each mode; of one worker."""
    present = set(trial.present_columns())
    for column in columns:
        if column not in present:
            continue
        table = trial.rows(name, ["step", "worker", "mode", "dtype", column])
        table = table.filter(table[column].is_valid())
        if table.num_rows:
            return [_line(name, column, *part) for part in _parts(table, column)]
    return []


def _parts(table: Any, column: str) -> list[tuple[ModeKeys, Floats]]:
    workers = to_numpy(one_array(table["worker"]).indices)
    modes = mode_numbers(one_array(table["mode"]))
    mine = workers == workers[0]
    values = np.asarray(to_numpy(table[column]), np.float64)
    order = np.argsort(to_numpy(table["step"]), kind="stable")
    modes, values = modes[order][mine[order]], values[order][mine[order]]
    if column == "value":
        with np.errstate(all="ignore"):
            kind = dtype_of(table["dtype"][0].as_py())
            values = values.astype(kind).astype(np.float64)
    return [(ModeKeys(int(mode)), values[modes == mode]) for mode in np.unique(modes)]


def _line(name: str, column: str, mode: ModeKeys, values: Floats) -> str:
    what = "" if column == "value" else f"{column} of "
    of = "" if mode is ModeKeys.GLOBAL else f", {mode.name}"
    finite = values[np.isfinite(values)]
    ends = f"last {values[-1]:.4g}"
    if len(finite):
        ends += f", lowest {finite.min():.4g}, highest {finite.max():.4g}"
    if len(finite) < len(values):
        ends += f", {len(values) - len(finite):,} NaN or Inf"
    title = f"{what}{name}{of}: {len(values):,} values"
    picture = sparkline(values, title)
    words = escape(cut(f"{what}{name}{of}", _NAME))
    return tag("div", f"{picture} {words} {_quiet(ends)}", style="white-space:nowrap")
