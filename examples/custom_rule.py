"""A rule of your own, over any run: fires when a weight grows tenfold between saved steps.

python examples/custom_rule.py
"""

from __future__ import annotations

import tempfile

import numpy as np

from smdebug import create_trial, modes
from smdebug.rules import Rule, run_rules
from smdebug.storage.batch import Entry, StepBatch
from smdebug.testing import make_run


class TenfoldWeight(Rule):
    """Compares the norm of every weight with that of the step before."""

    def invoke_at_step(self, step: int) -> bool:
        for name in self.base_trial.tensor_names(step=step, collection="weights"):
            weight = self.base_trial.tensor(name)
            norms = [weight.reduction_value(each, "l2") for each in weight.prev_steps(step, 2)]
            if norms[-1] > 10 * norms[0]:
                self.logger.info("%s grew from %g to %g", name, norms[0], norms[-1])
                return True
        return False


def made_up(worker: str, step: int) -> StepBatch:
    weight = np.full((2, 3), 100.0 if step >= 7 else 1.0, np.float32)
    return StepBatch(step, modes.TRAIN, step, [Entry("fc.weight", weight)])


if __name__ == "__main__":
    folder = tempfile.mkdtemp()
    make_run(folder, steps=range(10), data=made_up)
    # Built-in rules go by name, with parameters behind a colon.
    print(run_rules(folder, [TenfoldWeight, "UnchangedTensor:collection_names=weights"]))
    for finding in create_trial(folder).findings():
        print(finding)
