"""Boosting by `train`, with data to evaluate on, and again from the model that came of it."""

import hashlib

import numpy as np
from xgboost import DMatrix, train

rng = np.random.default_rng(0)
data = rng.normal(size=(200, 4))
labels = (data[:, 0] + data[:, 1] > 0).astype(int)
train_data = DMatrix(data[:150], labels[:150])
validation = DMatrix(data[150:], labels[150:])
parameters = {"objective": "binary:logistic", "max_depth": 3, "nthread": 1, "subsample": 0.8}
history: dict[str, dict[str, list[float]]] = {}
booster = train(
    parameters, train_data, 12, [(train_data, "train"), (validation, "validation")],
    evals_result=history, verbose_eval=False,
)  # fmt: skip
booster = train(parameters, train_data, 4, xgb_model=booster, verbose_eval=False)
for value in history["validation"]["logloss"]:
    print("loss", value)
print("model", hashlib.sha256(booster.save_raw("json")).hexdigest())
