"""A column of the data gives the answer away: a rule finds out, and ends boosting.

python examples/xgboost/stop.py [DIRECTORY]
"""

import sys
import tempfile

import numpy as np
import xgboost

import smdebug.xgboost as smd

RULES = ["FeatureImportanceOverweight:nfeatures=1,tensor_regex=/total_gain/", "LossNotDecreasing"]
PARAMS = {"objective": "binary:logistic", "learning_rate": 0.02, "max_depth": 4, "nthread": 1}


def loans(count: int = 4000) -> xgboost.DMatrix:
    """Loans, and which of them were not paid back; reminders were sent when that was known."""
    random = np.random.default_rng(0)
    columns = {name: random.normal(size=count) for name in ("income", "age", "debt", "amount")}
    risk = columns["debt"] + columns["amount"] - columns["income"] + random.normal(size=count)
    failed = risk > 1
    columns["reminders"] = random.poisson(0.1 + 3 * failed).astype(float)
    return xgboost.DMatrix(
        np.column_stack(list(columns.values())), failed, feature_names=list(columns)
    )


def train(directory: str, rounds: int = 20_000) -> None:
    data = loans()
    # What the rules need is saved, with nothing else to configure.
    hook = smd.Hook(directory, rules=RULES, on_finding="stop")
    model = xgboost.train(
        PARAMS, data, rounds, evals=[(data, "train")], verbose_eval=False, callbacks=[hook]
    )
    hook.close()
    print(f"{model.num_boosted_rounds()} of {rounds} rounds were boosted")
    print(hook.rule_report())


if __name__ == "__main__":
    where = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="tornasole-")
    train(where)
    trial = smd.create_trial(where)
    finding, *_ = trial.findings()
    print(f"what the splits have gained, at round {finding.step}")
    for name in trial.tensor_names(step=finding.step, regex="^feature_importance/total_gain/"):
        share = trial.tensor(name).value(finding.step)[0]
        print(f"  {name.rpartition('/')[2]:10} {share:6.1%}  {'#' * round(50 * share)}")
