"""A program with a hook on what it trains, as the options of `smdebug run` configure it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smdebug.cli.render.terminal import print_message
from smdebug.config import environment
from smdebug.config.collection import CollectionKeys
from smdebug.config.json_config import parse_json_config, read_json_object, unwrapped
from smdebug.exceptions import SMDebugValueError
from smdebug.instrument.start import instrument
from smdebug.rules.registry import RuleSpec
from smdebug.storage.end_marker import EndMarker
from smdebug.storage.stores.base import open_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from smdebug.cli.program import Program
    from smdebug.config.options import HookOptions
    from smdebug.instrument.job import InstrumentedJob


@dataclass
class Launch:
    """A program, and the configuration of its hook.

    Args:
        program: the program.
        description: the contents of a JSON config; None to run the program without a hook.
    """

    program: Program
    description: dict[str, Any] | None

    def prepare(self) -> Callable[[], None]:
        """Instrument what the program will import; return what runs it.

        Raises:
            SMDebugError: there is no such program.
        """
        if self.description is None:
            return self.program.load()
        # In this order: a package may import its framework before its module is even found.
        job = instrument(self.description, "smdebug run")
        run = self.program.load()

        def watched() -> None:
            try:
                run()
            finally:
                self._report(job)

        return watched

    def _report(self, job: InstrumentedJob) -> None:
        if job.hook is not None:
            job.hook.close()
        if environment.distributed_rank()[0] > 0:
            return
        if job.hook is None:
            print_message(
                f"nothing was saved: no training was detected in {self.program.name}; smdebug run "
                "supports PyTorch, Keras, XGBoost and MXNet Gluon, in the process of the script"
            )
        else:
            print_message(f"{job.hook.stats().saved_steps} steps saved in {job.hook.out_dir}")


def describe(
    program: Program,
    config: Path | None,
    out: str | None,
    save: str | None,
    parameters: dict[str, Any],
) -> dict[str, Any]:
    """Build the JSON config of a run, and check it now instead of when training begins.

    Args:
        program: names the run by default.
        config: a file with a JSON config.
        out: the directory or URL of the run.
        save: collections to save, separated by commas.
        parameters: hook parameters that override those of the file; None where not given.

    Raises:
        SMDebugError: the config or a rule is invalid, or the run is finished.
    """
    description = {} if config is None else dict(unwrapped(read_json_object(config)))
    _override(description, parameters, save)
    chosen = _choose_location(description, out, program)
    options = parse_json_config(description, "smdebug run").options
    for rule in options.rules:
        RuleSpec(rule).needs()
    _require_free(options)
    if chosen:
        print_message(f"saving to {description['LocalPath']}")
    return description


def _override(description: dict[str, Any], parameters: dict[str, Any], save: str | None) -> None:
    """Override parameters of the JSON config by those of the command line."""
    hook = dict(description.get("HookParameters") or {})
    hook.update({key: value for key, value in parameters.items() if value is not None})
    names = [] if save is None else [each.strip() for each in save.split(",")]
    if CollectionKeys.ALL in names:
        hook["save_all"] = True
    if names:
        known = hook.get("include_collections") or []
        known = known.split(",") if isinstance(known, str) else known
        hook["include_collections"] = [*known, *names]
    description["HookParameters"] = hook


def _require_free(options: HookOptions) -> None:
    """Refuse a finished run now and not when training begins, as the hook would."""
    if options.resume or options.overwrite or options.out_dir is None:
        return
    marker = EndMarker.of(open_store(options.out_dir))
    if marker is not None and not marker.interrupted:
        raise SMDebugValueError(
            f"{options.out_dir} already contains a finished run. Use another --out, --overwrite to "
            "replace it, or --resume to continue it."
        )


def _choose_location(description: dict[str, Any], out: str | None, program: Program) -> bool:
    """Set the directory of the run; return whether it is the default one."""
    given = out or description.get("LocalPath")
    if given is not None:
        description["LocalPath"] = _absolute(given)
    if given or description.get("S3OutputPath") or environment.in_sagemaker():
        return False
    if environment.distributed_rank()[1] > 1:
        raise SMDebugValueError(
            "--out is required for a job of several processes, which have to agree on it"
        )
    name = program.name if program.is_module else Path(program.name).stem
    location = f"runs/{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    description["LocalPath"] = _absolute(location)
    return True


def _absolute(location: Any) -> Any:
    """Return the absolute path of a directory, which a script may leave; URLs stay."""
    if not isinstance(location, str) or "://" in location:
        return location
    return str(Path(location).expanduser().absolute())
