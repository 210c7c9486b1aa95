"""The same made-up training for every figure; the peer imports it too, so it needs numpy only."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

REDUCTIONS = ("min", "max", "mean", "std", "l2")


def names(count: int) -> list[str]:
    """Names as a transformer has them."""
    parts = ("attn.q_proj", "attn.k_proj", "attn.v_proj", "mlp.fc1")
    return [f"gradient/model.layers.{i // 4}.{parts[i % 4]}.weight" for i in range(count)]


def reductions_of_step(step: int, tensors: int) -> npt.NDArray[np.float32]:
    """Float32 reductions of one step, (tensors, reductions), drifting as in a training."""
    rng = np.random.default_rng(step)
    level = np.linspace(0.5, 2.0, tensors)[:, None] * np.exp(-step / 500)
    noise = 1 + 0.05 * rng.standard_normal((tensors, len(REDUCTIONS)))
    values = level * np.array([-3.0, 3.0, 0.01, 0.7, 40.0]) * noise
    short: npt.NDArray[np.float32] = values.astype(np.float32)
    return short
