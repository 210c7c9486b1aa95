"""What is observed of which training, how long that is timed, and what it may cost."""

from __future__ import annotations

from dataclasses import dataclass, replace

ATTACHED = "attached, nothing saved"
LOSSES = "losses every step"
REDUCTIONS = "min, max, mean, std, l2 of all parameters and gradients every step"
REDUCTIONS_10 = "min, max, mean, std, l2 of all parameters and gradients every 10 steps"
RAW = "all raw parameters and gradients every step"
SUSTAINED = "all raw every step for longer than a queue of 67 MB lasts"
GRADIENTS_10 = "losses and raw gradients every 10 steps"
RULES = "what five rules need, and the rules, every step"
RULES_10 = "what five rules need, and the rules, every 10 steps"

GPT, COMPILED, DEEP = "GPT", "compiled GPT", "40 small layers"


@dataclass(frozen=True)
class Length:
    """How long something is timed.

    Attributes:
        steps: of one block. The shorter, the more alike a block and its neighbours; but a whole
            number of save intervals, and more than a queue takes where a queue fills.
        rounds: blocks whose median is a repetition's value.
        repetitions: each with new models, a new observer and a new folder. Of a single one, every
            block is a value.
        warm: steps before the clock runs.
    """

    steps: int
    rounds: int
    repetitions: int = 3
    warm: int = 3

    def shortened(self) -> Length:
        """Just long enough to see that it works; still a whole number of save intervals."""
        steps, warm = min(self.steps, 10), min(self.warm, 10)
        return replace(self, steps=steps, rounds=1, repetitions=1, warm=warm)


@dataclass(frozen=True)
class Setup:
    """A line of the table.

    Attributes:
        limit: what our hook's time per step may be, over that of the same training alone; None
            where it is the disk's doing.
        ours: how long our hook is timed.
        theirs: how long smdebug 1.0.34 is: it is slow, and has nothing to reach. None where there
            is nothing like it.
    """

    limit: float | None
    ours: Length
    theirs: Length | None


# Where we save every 10 steps, warming up 10 makes the save the first step of a block, so that the
# writer's thread is done with it before the block ends.
SETUPS = {
    GPT: {
        ATTACHED: Setup(1.01, Length(1, 16, 5), Length(1, 5, 2)),
        LOSSES: Setup(1.01, Length(1, 16, 5), Length(1, 5, 2)),
        REDUCTIONS: Setup(1.10, Length(2, 5), Length(1, 2, 2, 1)),
        REDUCTIONS_10: Setup(1.02, Length(10, 2, 3, 10), Length(10, 1, 2, 1)),
        RAW: Setup(1.15, Length(6, 2), Length(2, 2, 2, 1)),
        # Blocks of seconds: the rules look about once in one. Once, so that each is a value.
        RULES: Setup(1.12, Length(30, 6, 1), None),
        RULES_10: Setup(1.02, Length(30, 6, 1, 10), None),
    },
    # Once: each new model is compiled anew. Long enough to be done with that in two saves.
    COMPILED: {GRADIENTS_10: Setup(1.03, Length(10, 9, 1, 20), Length(10, 3, 1, 20))},
    DEEP: {
        ATTACHED: Setup(1.03, Length(5, 24, 5, 10), Length(5, 10, 2)),
        LOSSES: Setup(1.05, Length(5, 24, 5, 10), Length(5, 10, 2)),
        REDUCTIONS: Setup(1.8, Length(20, 5, 5, 10), Length(2, 3, 2, 1)),
        REDUCTIONS_10: Setup(1.10, Length(10, 10, 5, 10), Length(10, 2, 2)),
        RAW: Setup(1.6, Length(50, 2, 5, 10), Length(5, 3, 2)),
        SUSTAINED: Setup(None, Length(50, 2, 3, 10), None),
    },
}

# What the others do that is nearest: the loss is the loss, reductions are histograms.
HISTOGRAM_LENGTHS = {
    GPT: {
        LOSSES: Length(1, 8, 2),
        REDUCTIONS: Length(1, 2, 2, 1),
        REDUCTIONS_10: Length(10, 1, 2, 1),
    },
    DEEP: {
        LOSSES: Length(5, 12, 2, 10),
        REDUCTIONS: Length(3, 2, 2, 1),
        REDUCTIONS_10: Length(10, 3),
    },
}
# By hand: what a library that did nothing but copy and write would take.
FLOOR_LENGTHS = {
    GPT: {
        LOSSES: Length(1, 16, 3),
        REDUCTIONS: Length(2, 5),
        REDUCTIONS_10: Length(10, 2, 2, 10),
        RAW: Length(6, 2),
    },
    DEEP: {
        LOSSES: Length(5, 24, 3, 10),
        REDUCTIONS: Length(20, 5, 3, 10),
        REDUCTIONS_10: Length(10, 10, 3, 10),
        RAW: Length(50, 2, 3, 10),
        SUSTAINED: Length(50, 2, 3, 10),
    },
}


def lengths(library: str, training: str, ours: bool, quick: bool) -> dict[str, Length]:
    """The setups of a training that a library knows, and how long each is timed."""
    setups = SETUPS[training].items()
    known: dict[str, Length | None]
    if library == "smdebug_hook":
        known = {name: setup.ours if ours else setup.theirs for name, setup in setups}
    else:
        known = dict((FLOOR_LENGTHS if library == "floor" else HISTOGRAM_LENGTHS)[training])
    found = {name: length for name, length in known.items() if length is not None}
    return {name: each.shortened() for name, each in found.items()} if quick else found
