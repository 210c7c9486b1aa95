"""What can be configured is documented."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import re
from pathlib import Path

import pytest

from smdebug.config import environment, json_config
from smdebug.config.collection import Collection
from smdebug.config.options import HookOptions
from smdebug.config.reduction_config import ReductionConfig
from smdebug.config.save_config import SaveConfig, SaveConfigMode
from smdebug.hook.hook import BaseHook
from smdebug.hook.module_api import ModuleApi
from smdebug.trials import create

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
SOURCE = ROOT / "src" / "smdebug"
FRAMEWORKS = ("mxnet", "pytorch", "tensorflow", "xgboost")


def words_of(page: str, section: str = "") -> set[str]:
    """Returns what the tables of a page, or of a section of it, have between backticks."""
    text = (DOCS / page).read_text(encoding="utf-8")
    if section:
        (text,) = [part for part in text.split("\n## ") if part.startswith(f"{section}\n")]
    rows = [line for line in text.splitlines() if line.startswith("|")]
    return {word for row in rows for word in re.findall(r"`([^`]+)`", row)}


@pytest.mark.parametrize("variable", environment.VARIABLES, ids=lambda variable: variable.name)
def test_variable(variable: environment.Variable) -> None:
    text = (DOCS / "environment.md").read_text(encoding="utf-8")
    row = next(
        (line for line in text.splitlines() if line.startswith(f"| `{variable.name}` |")), ""
    )
    assert row, f"docs/environment.md has no row for {variable.name}"
    assert variable.default is None or f"| `{variable.default}` |" in row
    assert variable.alias is None or f"`{variable.alias}`" in row


def parameters_of(function: object) -> set[str]:
    assert callable(function)
    return set(inspect.signature(function).parameters) - {"self"}


def parameters_in(path: Path, kind: str) -> set[str]:
    """The arguments of a class whose module needs a framework: it is read, not imported."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    (found,) = [
        function
        for node in tree.body
        if isinstance(node, ast.ClassDef) and node.name == kind
        for function in node.body
        if isinstance(function, ast.FunctionDef) and function.name == "__init__"
    ]
    return {each.arg for each in [*found.args.args, *found.args.kwonlyargs]} - {"self"}


DOCUMENTED = {
    "SaveConfig": parameters_of(SaveConfig) | parameters_of(SaveConfigMode),
    "ReductionConfig": parameters_of(ReductionConfig),
    "Collection": parameters_of(Collection),
    "HookOptions": {field.name for field in dataclasses.fields(HookOptions)},
    "every hook": parameters_of(BaseHook),
    "the hook for XGBoost": parameters_in(SOURCE / "xgboost" / "hook.py", "Hook"),
    "JSON config": {
        *json_config.TOP_KEYS,
        *json_config.COLLECTION_KEYS,
        *json_config.HOOK_PARAMETERS,
        *json_config.COLLECTION_PARAMETERS,
    },
    "modes": {f"{key.partition('.')[0]}." for key in json_config.MODE_KEYS},
}


# Where each of them is told; the rest are arguments of hooks.
HOOK = "Arguments of a hook"
SECTIONS = {
    "SaveConfig": "SaveConfig: when",
    "ReductionConfig": "ReductionConfig: what",
    "Collection": "Collection: which",
    "JSON config": "JSON config",
    "modes": "JSON config",
}


@pytest.mark.parametrize("subject", DOCUMENTED)
def test_configuration(subject: str) -> None:
    missing = DOCUMENTED[subject] - words_of("configuration.md", SECTIONS.get(subject, HOOK))
    assert not missing, f"docs/configuration.md does not say what {sorted(missing)} of {subject} is"


def test_the_json_config_of_the_page_is_one() -> None:
    text = (DOCS / "configuration.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```json\n(.*?)```", text, re.DOTALL)
    job = json_config.parse_json_config(json.loads(example))
    assert [collection.name for collection in job.collections] == ["weights", "losses", "relu"]


def test_options_of_trials() -> None:
    known = parameters_of(create.create_trial) - {"options"}
    known |= {*create._OPTIONS, *create._WITHOUT_EFFECT}
    missing = known - words_of("trials.md")
    assert not missing, f"docs/trials.md does not say what {sorted(missing)} of create_trial is"


def own_methods(kind: type) -> set[str]:
    """The public methods of a class of ours, under their own names."""
    ours = [each for each in kind.__mro__ if each.__module__.startswith("smdebug")]
    return {
        name
        for owner in ours
        for name, value in vars(owner).items()
        if inspect.isfunction(value) and not name.startswith("_") and value.__name__ == name
    }


# Of smdebug 1.0, for scripts that have them; the public names list them.
OLDER = {"export_collections", "has_default_configuration", "should_save_tensor_or_collection"}


def test_methods_of_hooks() -> None:
    text = (DOCS / "configuration.md").read_text(encoding="utf-8")
    for name in own_methods(BaseHook) - OLDER:
        assert f"`hook.{name}(" in text, f"docs/configuration.md does not say what hook.{name} does"
    for name in own_methods(ModuleApi) | {"set_hook", "del_hook"}:
        assert f"`smd.{name}(" in text, f"docs/configuration.md does not say what smd.{name} does"


def exported(module: str) -> set[str]:
    """What a module says is public; it is read, not imported."""
    path = SOURCE / Path(*module.split(".")[1:])
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return set(ast.literal_eval(node.value))
    raise AssertionError(f"{module} does not say what is public")


def public_modules() -> list[str]:
    """Modules that scripts import; `core` is for those of smdebug 1.0."""
    adapters = [f"smdebug.{name}" for name in FRAMEWORKS]
    others = ["", ".trials", ".rules", ".rules.action", ".analysis.utils", ".testing"]
    return [*(f"smdebug{name}" for name in others), *adapters]


@pytest.mark.parametrize("module", public_modules())
def test_public_names(module: str) -> None:
    text = (DOCS / "api.md").read_text(encoding="utf-8")
    # What is shown in full, under its own name or another; or is another name of something.
    shown = {path.rpartition(".")[2] for path in re.findall(r"^::: (\S+)$", text, re.MULTILINE)}
    shown |= {name.rpartition(".")[2] for name in re.findall(r"heading: (\S+)$", text, re.M)}
    shown |= {name.rpartition(".")[2] for name in re.findall(r"`([\w.<>]+)` is", text)}
    missing = exported(module) - shown - {"__version__"}
    assert not missing, f"docs/api.md does not show {sorted(missing)} of {module}"


def test_extras() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    section = text.split("[project.optional-dependencies]\n")[1].split("\n[")[0]
    extras = set(re.findall(r"^(\w+) = ", section, re.MULTILINE))
    assert "cloud" in extras
    missing = extras - words_of("install.md")
    assert not missing, f"docs/install.md does not say what the extra {sorted(missing)} is for"
