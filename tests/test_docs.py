"""What can be configured is documented."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
from pathlib import Path

import pytest

from smdebug.config import environment, job_file
from smdebug.config.collection import Collection
from smdebug.config.options import HookOptions
from smdebug.config.reduction import ReductionConfig
from smdebug.config.save import SAVE_FIELDS, START_STEP_ALIAS

DOCS = Path(__file__).parent.parent / "docs"


def words_of(page: str) -> set[str]:
    """Returns what the tables of a page have between backticks."""
    text = (DOCS / page).read_text(encoding="utf-8")
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


DOCUMENTED = {
    "SaveConfig": {*SAVE_FIELDS, START_STEP_ALIAS},
    "ReductionConfig": parameters_of(ReductionConfig),
    "Collection": parameters_of(Collection),
    "HookOptions": {field.name for field in dataclasses.fields(HookOptions)},
    "job file": {
        *job_file.TOP_KEYS,
        *job_file.COLLECTION_KEYS,
        *job_file.HOOK_PARAMETERS,
        *job_file.COLLECTION_PARAMETERS,
    },
    "modes": {f"{key.partition('.')[0]}." for key in job_file.MODE_KEYS},
}


@pytest.mark.parametrize("subject", DOCUMENTED)
def test_configuration(subject: str) -> None:
    missing = DOCUMENTED[subject] - words_of("configuration.md")
    assert not missing, f"docs/configuration.md does not say what {sorted(missing)} of {subject} is"


def test_the_job_file_of_the_page_is_one() -> None:
    text = (DOCS / "configuration.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```json\n(.*?)```", text, re.DOTALL)
    job = job_file.parse_job_file(json.loads(example))
    assert [collection.name for collection in job.collections] == ["weights", "losses", "relu"]
