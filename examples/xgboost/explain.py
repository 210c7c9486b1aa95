"""Saves SHAP values and trees: what a prediction is made of, and how a round decides.

python examples/xgboost/explain.py [DIRECTORY]
"""

import sys
import tempfile

import numpy as np
import xgboost
from sklearn.datasets import load_wine

import smdebug.xgboost as smd

WINE = load_wine()
PARAMS = {"objective": "multi:softprob", "num_class": 3, "max_depth": 2, "nthread": 1}


def train(directory: str) -> None:
    data = xgboost.DMatrix(WINE.data, WINE.target, feature_names=list(WINE.feature_names))
    hook = smd.Hook(
        directory,
        include_collections=["full_shap", "trees"],
        save_config=smd.SaveConfig(save_interval=10),
        train_data=data,
        shap_samples=60,
    )
    xgboost.train(PARAMS, data, 31, evals=[(data, "train")], verbose_eval=False, callbacks=[hook])
    hook.close()


def show(nodes: dict[str, np.ndarray], identity: str, indent: str = "  ") -> None:
    """Prints a node of a tree and what is below it."""
    place = nodes["ID"].tolist().index(identity)
    if nodes["Feature"][place] == "Leaf":
        print(f"{indent}{nodes['Gain'][place]:+.2f}")
        return
    for branch, sign in (("Yes", "<"), ("No", ">=")):
        print(f"{indent}{nodes['Feature'][place]} {sign} {nodes['Split'][place]:.2f}")
        show(nodes, nodes[branch][place], f"{indent}    ")


if __name__ == "__main__":
    where = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="tornasole-")
    train(where)
    trial = smd.create_trial(where)
    print(trial)
    # Rows, classes, features; the last column is what the model expects without any feature.
    contributions = trial.tensor("full_shap").value(30)[..., :-1]
    print(f"SHAP values of round 30, {contributions.shape}: their mean size by class and feature")
    sizes = abs(contributions).mean(axis=0)
    for name, of_class in zip(WINE.target_names, sizes, strict=True):
        largest = np.argsort(of_class)[::-1][:3]
        parts = [f"{WINE.feature_names[place]} {of_class[place]:.2f}" for place in largest]
        print(f"  {name}:", ", ".join(parts))
    print("the first tree of round 0: what it adds to the score of class_0")
    columns = [name.removeprefix("trees/") for name in trial.tensor_names(collection="trees")]
    show({name: trial.tensor(f"trees/{name}").value(0) for name in columns}, "0-0")
