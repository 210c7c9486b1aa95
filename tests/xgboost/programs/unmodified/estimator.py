"""An estimator of scikit-learn's kind, in a pipeline."""

import hashlib

import numpy as np
import xgboost
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

rng = np.random.default_rng(1)
data = rng.normal(size=(120, 5))
labels = data @ rng.normal(size=5)
model = xgboost.XGBRegressor(n_estimators=10, max_depth=2, n_jobs=1, eval_metric="rmse")
pipeline = make_pipeline(StandardScaler(), model)
pipeline.fit(data, labels, xgbregressor__eval_set=[(data, labels)], xgbregressor__verbose=False)
for value in model.evals_result()["validation_0"]["rmse"]:
    print("loss", value)
print("model", hashlib.sha256(model.get_booster().save_raw("json")).hexdigest())
