"""What is observed of which training, how long that is timed, and what it may cost."""

from __future__ import annotations

from dataclasses import dataclass

ATTACHED = "attached, nothing saved"
LOSSES = "losses every step"
REDUCTIONS = "min, max, mean, std, l2 of all parameters and gradients every step"
REDUCTIONS_10 = "min, max, mean, std, l2 of all parameters and gradients every 10 steps"
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
    repetitions: int = 3
    warm: int = 3


@dataclass(frozen=True)
class Setup:
    """A line of the table.

    Attributes:
        limit: what our hook's time per step may be, over that of the same training alone.
        ours: how long our hook is timed.
        theirs: how long a peer is timed; shorter, for peers are slow and have nothing to reach.
    """

    limit: float
    ours: Length
    theirs: Length


# Where we save every 10 steps, warming up 10 makes the save the first step of a block, so that the
# writer's thread is done with it before the block ends.
SETUPS = {
    GPT: {
        ATTACHED: Setup(1.01, Length(1, 20, 5), Length(1, 5)),
        LOSSES: Setup(1.01, Length(1, 20, 5), Length(1, 5)),
        REDUCTIONS: Setup(1.10, Length(2, 6), Length(1, 2, 2, 1)),
        REDUCTIONS_10: Setup(1.02, Length(10, 3, warm=10), Length(10, 1, 2, 1)),
        RAW: Setup(1.15, Length(8, 2), Length(2, 2, 2, 1)),
    },
    COMPILED: {GRADIENTS_10: Setup(1.03, Length(10, 4, warm=10), Length(10, 2, 2))},
    DEEP: {
        ATTACHED: Setup(1.03, Length(5, 40, 5, 10), Length(5, 10)),
        LOSSES: Setup(1.05, Length(5, 40, 5, 10), Length(5, 10)),
        REDUCTIONS: Setup(1.8, Length(20, 5, 5, 10), Length(2, 3, 2, 1)),
        REDUCTIONS_10: Setup(1.10, Length(10, 20, 5, 10), Length(10, 2)),
        RAW: Setup(1.6, Length(50, 5, warm=10), Length(5, 3)),
    },
}

# What the others do that is nearest.
HISTOGRAM_LENGTHS = {
    GPT: {HISTOGRAMS: Length(1, 2, 2, 1), HISTOGRAMS_10: Length(10, 1, 2, 1)},
    DEEP: {HISTOGRAMS: Length(3, 2, 2, 1), HISTOGRAMS_10: Length(10, 3)},
}


def lengths(hook: bool, training: str, ours: bool) -> dict[str, Length]:
    """The setups of a training that a library knows, and how long each is timed."""
    if not hook:
        return HISTOGRAM_LENGTHS[training]
    setups = SETUPS[training].items()
    return {name: setup.ours if ours else setup.theirs for name, setup in setups}
