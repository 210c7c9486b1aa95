"""train_xgboost.py [get_hook|from_json|from_config]: a script for SageMaker, as AWS's examples are.

It prints what XGBoost itself says of every round in JSON, and the model at the end.
"""

import json
import sys

import numpy as np
import xgboost

import smdebug.xgboost as smd


def main(way):
    random = np.random.default_rng(0)
    features = random.normal(size=(200, 4))
    targets = features[:, 0] * 2 - features[:, 1] + random.normal(scale=0.1, size=200)
    train = xgboost.DMatrix(features[:150], targets[:150])
    validation = xgboost.DMatrix(features[150:], targets[150:])
    ways = {
        "get_hook": smd.get_hook,
        "from_json": smd.Hook.create_from_json_file,
        "from_config": smd.Hook.hook_from_config,
    }
    params = {"max_depth": 3, "eta": 0.3, "eval_metric": ["rmse", "mae"], "nthread": 1, "seed": 0}
    hook = ways[way]()
    if hook:
        hook.hyperparameters = params
    results = {}
    model = xgboost.train(
        params,
        train,
        num_boost_round=6,
        evals=[(train, "train"), (validation, "validation")],
        evals_result=results,
        verbose_eval=False,
        callbacks=[hook] if hook else None,
    )
    print(json.dumps(["results", results]))
    print(json.dumps(["model", model.get_dump(with_stats=True)]))


if __name__ == "__main__":
    main(*sys.argv[1:])
