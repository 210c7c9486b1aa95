"""Trains with secrets all around it, and shows everything that can be shown.

    python -m tests.faults.programs.secretive <out_dir> <JSON config>

The JSON config has rules with actions. Everything is logged, at the level of DEBUG.
"""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

import numpy as np
from tests.faults.injected_secrets import said_by
from tests.hook.numpy_hook import NumpyHook

from smdebug.config.json_config import read_json_config
from smdebug.rules.rule_invoker import invoke_rule
from smdebug.trials import create_trial


def show(*things: object) -> None:
    for each in things:
        sys.stdout.write(f"{each!r} {each}\n")


def main(out_dir: str, json_config_file: str) -> None:
    logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
    for name in ("botocore", "boto3", "urllib3"):
        # They are not ours.
        logging.getLogger(name).setLevel(logging.WARNING)
    given = json.loads(Path(json_config_file).read_text())
    given["S3OutputPath"] = out_dir
    job = read_json_config(given)
    show(job, job.options, job.collections)
    hook = NumpyHook.create_from_json_file(given)
    pipeline = hook._pipeline
    rules, store = pipeline.rule_set, pipeline.run.store
    assert rules is not None
    show(hook, hook.get_collections(), hook.collection_manager, pipeline.rules, rules)
    show(rules.specs, rules.actions, store, vars(store).get("url"))
    for step in range(5):
        hook.run(weight=np.ones(3), loss=np.array(np.nan if step == 3 else 1.0))
    hook.save_scalar("last", 1.0)
    hook.close()
    show(hook.findings(), hook.rule_report(), hook.stats())
    trial = create_trial(out_dir)
    show(trial, trial.tensor("loss"), vars(trial).get("path"))
    for rule in rules.specs:
        made = rule.make(trial)
        show(made, vars(made).get("rule_parameters"))
        try:
            invoke_rule(made, raise_eval_cond=True)
        except Exception as error:
            sys.stdout.write(said_by(error))
        made._actions.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
