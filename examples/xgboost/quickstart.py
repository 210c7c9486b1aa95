"""Boosts trees, saves metrics and the importance of every feature, and looks at them.

python examples/xgboost/quickstart.py [DIRECTORY]
"""

import sys
import tempfile

import xgboost
from sklearn.datasets import load_breast_cancer

import smdebug.xgboost as smd

PARAMS = {
    "objective": "binary:logistic",
    "eval_metric": ["auc", "logloss"],
    "max_depth": 3,
    "learning_rate": 0.1,
    "nthread": 1,  # with so little data, several would only wait for each other
}


def train(directory: str) -> None:
    data = load_breast_cancer()
    names = list(data.feature_names)
    known = xgboost.DMatrix(data.data[:400], data.target[:400], feature_names=names)
    unseen = xgboost.DMatrix(data.data[400:], data.target[400:], feature_names=names)
    hook = smd.Hook(
        directory,
        include_collections=["feature_importance"],
        save_config=smd.SaveConfig(save_interval=5),
    )
    evals = [(known, "train"), (unseen, "validation")]
    xgboost.train(PARAMS, known, 101, evals=evals, verbose_eval=False, callbacks=[hook])
    hook.close()
    print(hook.stats())


if __name__ == "__main__":
    where = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="tornasole-")
    train(where)
    trial = smd.create_trial(where)
    print(trial)
    steps, losses = trial.tensor("validation-logloss").series()
    _, areas = trial.tensor("validation-auc").series()
    print("round  validation-logloss  validation-auc")
    for place in range(0, len(steps), 4):
        print(f"{steps[place]:5}  {losses[place]:18.4f}  {areas[place]:14.4f}")
    importances = {}
    for name in trial.tensor_names(regex="^feature_importance/total_gain/"):
        _, shares = trial.tensor(name).series()
        importances[name.rpartition("/")[2]] = shares[-1]
    print("what the splits on each feature have gained, of all that was gained")
    for feature in sorted(importances, key=importances.__getitem__, reverse=True)[:6]:
        share = importances[feature]
        print(f"  {feature:20} {share:6.1%}  {'#' * round(60 * share)}")
