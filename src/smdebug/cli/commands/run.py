"""`smdebug run`: zero-code instrumentation of a training script."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from smdebug.cli.program import Program
from smdebug.cli.render.terminal import say
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

    from smdebug.config.options import HookOptions
    from smdebug.instrument.job import InstrumentedJob

_HELP = (
    "Runs a training script with a hook on the model it trains, without code changes.\n\n"
    "PyTorch (also Lightning, Hugging Face, accelerate), Keras, XGBoost and MXNet Gluon are "
    "detected. Arguments after the script are passed to it.\n\n"
    "Examples:\n\n"
    "    smdebug run --save weights,gradients --every 100 -- train.py --epochs 3\n\n"
    "    smdebug run --rules VanishingGradient,NonFinite --stop -- train.py\n\n"
    "    python -m smdebug run --config hook.json -m my_package.train --lr 0.1\n\n"
    "    torchrun --nproc-per-node 2 -m smdebug run --out runs/one -- train.py\n\n"
)


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
            say(
                f"nothing was saved: no training was detected in {self.program.name}; smdebug run "
                "supports PyTorch, Keras, XGBoost and MXNet Gluon, in the process of the script"
            )
        else:
            say(f"{job.hook.stats().saved_steps} steps saved in {job.hook.out_dir}")


def run(
    context: typer.Context,
    program: Annotated[
        list[str], typer.Argument(help="The script and its arguments.", metavar="SCRIPT")
    ],
    config: Annotated[
        Path | None, typer.Option(help="A JSON config; the other options override it.")
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(help="The directory or URL of the run. [default: runs/SCRIPT-TIME]"),
    ] = None,
    save: Annotated[
        str | None,
        typer.Option(help="Collections to save: weights,gradients; or all."),
    ] = None,
    every: Annotated[
        int | None, typer.Option(help="Save every N steps.", metavar="N", min=1)
    ] = None,
    reductions: Annotated[
        str | None,
        typer.Option(help="Reductions to save instead of tensors, with commas: mean,l2_norm."),
    ] = None,
    rules: Annotated[
        str | None,
        typer.Option(help="Rules to evaluate during training: NonFinite,LossNotDecreasing."),
    ] = None,
    stop: Annotated[bool, typer.Option("--stop", help="Stop when a rule finds something.")] = False,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Write TensorBoard files too.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the run in --out, if there is one.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the run in --out, if there is one.")
    ] = False,
    module: Annotated[
        bool, typer.Option("-m", help="SCRIPT is the name of a module, as in python -m.")
    ] = False,
) -> None:
    # The help is _HELP; a docstring here would replace it.
    if program[0] == "-m":
        module, program = True, program[1:]
    if not program:
        raise SMDebugValueError("-m must be followed by the name of a module")
    target = Program(program[0], program[1:], is_module=module)
    target.check()
    description = None
    if environment.use_smdebug():
        description = {} if config is None else dict(unwrapped(read_json_object(config)))
        parameters = {
            "save_interval": every,
            "reductions": reductions,
            "rules": rules,
            "on_finding": "stop" if stop else None,
            "export_tensorboard": True if tensorboard else None,
            "resume": True if resume else None,
            "overwrite": True if overwrite else None,
        }
        _lay_over(description, parameters, save)
        chosen = _choose_location(description, out, target)
        options = parse_json_config(description, "smdebug run").options
        for rule in options.rules:
            # Now, and not when training begins.
            RuleSpec(rule).needs()
        _require_free(options)
        if chosen:
            say(f"saving to {description['LocalPath']}")
    # Run later: here the command line parser would catch the exceptions of the script.
    context.obj.append(Launch(target, description))


run.__doc__ = _HELP


def _lay_over(description: dict[str, Any], parameters: dict[str, Any], save: str | None) -> None:
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
