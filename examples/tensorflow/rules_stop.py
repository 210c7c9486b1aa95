"""A rule sees that the gradients have vanished, and `fit` ends.

python examples/tensorflow/rules_stop.py [DIRECTORY]
"""

import sys
import tempfile

import numpy as np
from tensorflow import keras

import smdebug.tensorflow as smd

RULES = ["VanishingGradient", "NonFinite", "LossNotDecreasing", "DeadRelu"]


def train(directory: str, epochs: int = 1000) -> None:
    keras.utils.set_random_seed(0)
    values = np.random.default_rng(0).normal(size=(640, 16)).astype("float32")
    kinds = ["relu"] + ["sigmoid"] * 11
    layers = [keras.layers.Dense(16, kind, name=f"{n:02}_{kind}") for n, kind in enumerate(kinds)]
    model = keras.Sequential([keras.Input((16,)), *layers, keras.layers.Dense(2, name="scores")])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    # What the rules need is saved, with nothing else to configure.
    hook = smd.KerasHook(directory, rules=RULES, on_finding="stop")
    history = model.fit(values, values.sum(axis=1) > 0, epochs=epochs, verbose=0, callbacks=[hook])
    hook.close()
    print(f"fit has ended in epoch {len(history.epoch)} of {epochs}, after step {hook.step}")
    print(hook.rule_report())


if __name__ == "__main__":
    where = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="tornasole-")
    train(where)
    trial = smd.create_trial(where)
    finding = next(each for each in trial.findings() if each.rule == "VanishingGradient")
    print(f"the mean of the absolute gradients, at step {finding.step}")
    for name in trial.tensor_names(step=finding.step, regex="kernelGrad"):
        mean = trial.tensor(name).reduction_value(finding.step, "mean", abs=True)
        print(f"  {name:31} {mean:7.1e}  {'#' * max(0, round(4 * (np.log10(mean) + 11)))}")
