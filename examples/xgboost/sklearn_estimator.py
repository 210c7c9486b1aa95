"""Trains two scikit-learn estimators with early stopping, a run for each, and compares them.

python examples/xgboost/sklearn_estimator.py [DIRECTORY]
"""

import sys
import tempfile

from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split
from xgboost import XGBRegressor

import smdebug.xgboost as smd

DEPTHS = (1, 6)


def train(directory: str, depth: int) -> None:
    values, targets = load_diabetes(return_X_y=True)
    known, unseen, known_targets, unseen_targets = train_test_split(values, targets, random_state=0)
    hook = smd.Hook(directory, save_config=smd.SaveConfig(save_interval=1))
    model = XGBRegressor(
        n_estimators=300,
        max_depth=depth,
        learning_rate=0.1,
        early_stopping_rounds=20,
        n_jobs=1,
        callbacks=[hook],
    )
    # The estimator calls its data sets validation_0, validation_1, ...
    model.fit(
        known,
        known_targets,
        eval_set=[(known, known_targets), (unseen, unseen_targets)],
        verbose=False,
    )
    hook.close()


if __name__ == "__main__":
    where = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="tornasole-")
    for depth in DEPTHS:
        train(f"{where}/depth_{depth}", depth)
    for depth in DEPTHS:
        trial = smd.create_trial(f"{where}/depth_{depth}")
        rounds, known = trial.tensor("validation_0-rmse").series()
        _, unseen = trial.tensor("validation_1-rmse").series()
        best = int(unseen.argmin())
        print(f"depth {depth}: {len(rounds)} rounds, the best is {rounds[best]}")
        print("  round   error on what it knows   on what it has not seen")
        for place in sorted({0, best // 2, best, len(rounds) - 1}):
            gap = "#" * round(unseen[place] - known[place])
            print(f"  {rounds[place]:5}   {known[place]:22.1f}   {unseen[place]:23.1f}  {gap}")
