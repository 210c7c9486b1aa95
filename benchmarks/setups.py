"""What is observed of which training, how long that is timed, and what it may cost."""

from __future__ import annotations

from dataclasses import dataclass, replace

ATTACHED = "attached, nothing saved"
LOSSES = "losses every step"
REDUCTIONS = "min, max, mean, std, l2 of all parameters and gradients every step"
REDUCTIONS_10 = "the same every 10 steps"
RAW = "all raw parameters and gradients every step"
GRADIENTS_10 = "losses and raw gradients every 10 steps"
HISTOGRAMS = "histograms of all parameters and gradients every step"
HISTOGRAMS_10 = "histograms of all parameters and gradients every 10 steps"

GPT, COMPILED, DEEP = "GPT", "compiled GPT", "40 small layers"


@dataclass(frozen=True)
class Length:
    """How long something is timed.

    Attributes:
        steps: of one block. The shorter, the more alike a block and its neighbours; but a whole
            number of save intervals, and more than a queue takes where a queue fills.
        rounds: blocks whose median is one repetition's value.
        repetitions: each with new models, a new observer and a new folder.
        warm: steps before the clock runs.
    """

    steps: int
    rounds: int
    repetitions: int = 5
    warm: int = 3

    def brief(self) -> Length:
        """Enough for what is only stood beside."""
        return replace(self, rounds=max(2, self.rounds // 4), repetitions=3)


@dataclass(frozen=True)
class Setup:
    """A line of the table.

    Attributes:
        limit: what our hook's time per step may be, over that of the same training alone.
        length: how long it is timed.
    """

    limit: float
    length: Length


# Where a save comes every 10 steps, warming up 10 makes it the first of a block, so that the
# writer's thread is done with it before the block ends.
SETUPS = {
    GPT: {
        ATTACHED: Setup(1.01, Length(1, 24)),
        LOSSES: Setup(1.01, Length(1, 24)),
        REDUCTIONS: Setup(1.10, Length(2, 6)),
        REDUCTIONS_10: Setup(1.02, Length(10, 3, warm=10)),
        RAW: Setup(1.15, Length(8, 3)),
    },
    COMPILED: {GRADIENTS_10: Setup(1.03, Length(10, 4, repetitions=3, warm=10))},
    DEEP: {
        ATTACHED: Setup(1.03, Length(5, 70, warm=10)),
        LOSSES: Setup(1.05, Length(5, 70, warm=10)),
        REDUCTIONS: Setup(1.8, Length(20, 12, warm=10)),
        REDUCTIONS_10: Setup(1.10, Length(10, 30, warm=10)),
        RAW: Setup(1.6, Length(50, 6, warm=10)),
    },
}

# What the others do that is nearest; there is nothing for them to reach.
HISTOGRAM_LENGTHS = {
    GPT: {HISTOGRAMS: Length(2, 2, 3), HISTOGRAMS_10: Length(10, 2, 3, warm=10)},
    DEEP: {HISTOGRAMS: Length(10, 2, 3, warm=10), HISTOGRAMS_10: Length(10, 6, 3, warm=10)},
}
