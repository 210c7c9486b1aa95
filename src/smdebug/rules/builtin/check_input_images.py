"""Images that are not normalised."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from smdebug.config import validation
from smdebug.config.rule_requirements import TensorRequirement
from smdebug.exceptions import SMDebugValueError
from smdebug.rules.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from smdebug.mode_keys import ModeKeys
    from smdebug.reductions import Array
    from smdebug.storage.findings import Finding
    from smdebug.trials.frame import Frame, RawValue
    from smdebug.trials.index_rows import Floats
    from smdebug.trials.trial import Trial

    _Key = tuple[str, ModeKeys, int]

_COLLECTION = "input_image"
_AXES = 4
# Smaller batches of images are rare.
_BATCH = 5


class CheckInputImages(Rule):
    """Fires when the mean of a channel of the input images is far from zero.

    Most image models learn best from images whose channels have been normalised to a mean of 0.
    Images are added up from the first step on, of all workers together and of each mode by itself,
    so that validation images which are not normalised as the others are found. From
    `threshold_samples` images on, at every step with images, it fires when the absolute value of
    the mean of a channel over all of them is above `threshold_mean`.

    Only inputs with four axes are images; axis 0 counts them. Images with NaN or infinity in them
    are left out. The numbers of a channel are needed themselves: no reduction holds their means.

    Args:
        base_trial: the trial to look at.
        threshold_mean: how far from zero the mean of a channel may be.
        threshold_samples: how many images make a judgement.
        regex: names of the inputs, in addition to the collection `input_image`.
        channel: the axis of the channels: 1 for `(N, C, H, W)`, 3 for `(N, H, W, C)`.
        action_str: what to do when it fires; see `Rule`.

    Example:
        >>> run_rules("/tmp/run", ["CheckInputImages:channel=3"])  # doctest: +SKIP
    """

    def __init__(
        self,
        base_trial: Trial | None,
        threshold_mean: Any = 0.2,
        threshold_samples: Any = 500,
        regex: Any = ".*hybridsequential0_input_0",
        channel: Any = 1,
        action_str: Any = "",
    ) -> None:
        super().__init__(base_trial, action_str)
        self.threshold_mean = validation.number("threshold_mean", threshold_mean, minimum=0)
        self.threshold_samples = validation.whole_number("threshold_samples", threshold_samples, 1)
        self.images = self.choose([_COLLECTION], regex, key="regex")
        self.channel = validation.whole_number("channel", channel, 1)
        if self.channel >= _AXES:
            raise SMDebugValueError(
                "channel must be the axis of the channels, 1 to 3, "
                f"got {validation.short_repr(channel)}"
            )
        # By tensor, mode and number of channels: the images so far and the sum of their means.
        self._sums: dict[_Key, tuple[int, Floats]] = {}
        self._other_shape: tuple[str, tuple[int, ...]] | None = None
        self._judged_any = False

    def needs(self) -> tuple[TensorRequirement, ...]:
        """The images themselves, of as many steps as it takes batches of 5 images."""
        return (
            TensorRequirement(
                _COLLECTION, raw=True, include_regex=tuple(self.images.regexes), layers=("model",),
                tensor="input", index=0, saves=-(-self.threshold_samples // _BATCH),
            ),
        )  # fmt: skip

    def start_over(self) -> None:
        """Forgets all images."""
        super().start_over()
        self._sums.clear()
        self._other_shape, self._judged_any = None, False

    def check(self, frame: Frame) -> Iterable[Finding]:
        """Adds up the images of each step, and judges their means."""
        for step, group in groupby(self.read_raw(frame, self.images), lambda value: value.step):
            mode = frame.mode_at(step)[0]
            keys = {self._add(value, mode): None for value in group}
            for key in keys:
                if key is not None:
                    yield from self._look_at(frame, step, key)

    def missing(self) -> str:
        """Why nothing could be judged."""
        missing = super().missing()
        if missing or self._judged_any:
            return missing
        if not self._sums:
            tensor, shape = self._other_shape or ("the input", ())
            return f"{tensor} has the shape {shape}: no images, which have four axes"
        most = max(seen for seen, _ in self._sums.values())
        return (
            f"{most} images were saved, and {self.threshold_samples} are needed: save them more "
            "often, or lower threshold_samples"
        )

    # ---- inside

    def _add(self, value: RawValue, mode: ModeKeys) -> _Key | None:
        tensor, images = value.column.tensor, value.array
        if images.ndim != _AXES or images.dtype.kind in "USOc" or not images.size:
            self._other_shape = (tensor, images.shape)
            return None
        count, sums = _channel_sums(images, self.channel)
        key = (tensor, mode, len(sums))
        seen, so_far = self._sums.get(key, (0, np.zeros(len(sums))))
        self._sums[key] = (seen + count, so_far + sums)
        return key

    def _look_at(self, frame: Frame, step: int, key: _Key) -> Iterator[Finding]:
        seen, sums = self._sums[key]
        if seen < self.threshold_samples:
            return
        self._judged_any = True
        means = sums / seen
        worst = int(np.abs(means).argmax())
        mean, limit = float(means[worst]), self.threshold_mean
        if self.started(key, abs(mean) > limit, step):
            message = (
                f"the images in {key[0]} are not normalised: channel {worst} has a mean of "
                f"{mean:.3g} over {seen} images, further from 0 than {limit:.3g}"
            )
            # Of all workers together, so of none.
            yield replace(self.finding(frame, step, message, None, mean, limit), tensor=key[0])


def _channel_sums(images: Array, channel: int) -> tuple[int, Floats]:
    """How many images there are, and for each channel the sum of the images' means."""
    axes = tuple(axis for axis in (1, 2, 3) if axis != channel)
    # An array of small floats has no exact sums of its own.
    with np.errstate(invalid="ignore", over="ignore"):
        kind = images if images.dtype.kind in "biuf" else images.astype(np.float32)
        means: Floats = kind.mean(axis=axes, dtype=np.float64)
    whole = np.isfinite(means).all(axis=1)
    return int(whole.sum()), means[whole].sum(axis=0)
