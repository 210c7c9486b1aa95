"""Cross-validates two learning rates, a run for each: the mean of all folds and their spread.

python examples/xgboost/cross_validation.py [DIRECTORY]
"""

import sys
import tempfile

import xgboost
from sklearn.datasets import load_breast_cancer

import smdebug.xgboost as smd

RATES = (0.05, 0.3)


def validate(directory: str, rate: float) -> None:
    data = xgboost.DMatrix(*load_breast_cancer(return_X_y=True))
    params = {"objective": "binary:logistic", "max_depth": 3, "learning_rate": rate, "nthread": 1}
    with smd.Hook(directory, save_config=smd.SaveConfig(save_interval=1)) as hook:
        xgboost.cv(params, data, 100, nfold=5, metrics="logloss", callbacks=[hook])


if __name__ == "__main__":
    where = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="tornasole-")
    for rate in RATES:
        validate(f"{where}/rate_{rate}", rate)
    for rate in RATES:
        trial = smd.create_trial(f"{where}/rate_{rate}")
        rounds, means = trial.tensor("test-logloss").series()
        _, spreads = trial.tensor("test-logloss-std").series()
        best = int(means.argmin())
        print(f"learning rate {rate}: the best of {len(rounds)} rounds is {rounds[best]}")
        for place in sorted({0, 10, 30, best, len(rounds) - 1}):
            bar = "#" * round(60 * means[place])
            print(f"  round {rounds[place]:3}  {means[place]:.4f} +- {spreads[place]:.4f}  {bar}")
