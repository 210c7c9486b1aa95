"""`smdebug run`: an unmodified script, with a hook on what it trains."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from smdebug.cli.program import Program
from smdebug.cli.terminal import say
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
    "Runs a training script, unmodified, with a hook on what it trains.\n\n"
    "PyTorch (also Lightning, Hugging Face, accelerate), Keras, XGBoost and MXNet Gluon are found "
    "by themselves. What stands behind the script are its own arguments.\n\n"
    "Examples:\n\n"
    "    smdebug run --save weights,gradients --every 100 -- train.py --epochs 3\n\n"
    "    smdebug run --rules VanishingGradient,NonFinite --stop -- train.py\n\n"
    "    python -m smdebug run --config hook.json -m my_package.train --lr 0.1\n\n"
    "    torchrun --nproc-per-node 2 -m smdebug run --out runs/one -- train.py\n\n"
)


@dataclass
class Launch:
    """A program, and what is to be saved of it.

    Args:
        program: the program.
        description: what a job file says; None to run the program alone.
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
                f"nothing was saved: no training was seen in {self.program.name}; smdebug run "
                "knows PyTorch, Keras, XGBoost and MXNet Gluon, in the process of the script itself"
            )
        else:
            say(f"{job.hook.stats().saved_steps} steps saved in {job.hook.out_dir}")


def run(
    context: typer.Context,
    program: Annotated[
        list[str], typer.Argument(help="The script and its arguments.", metavar="SCRIPT")
    ],
    config: Annotated[
        Path | None, typer.Option(help="A job file (JSON); the other options go over it.")
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(help="Where the run goes: a directory or URL. [default: runs/SCRIPT-TIME]"),
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
        typer.Option(help="Numbers to save instead of tensors, with commas: mean,l2_norm."),
    ] = None,
    rules: Annotated[
        str | None, typer.Option(help="Rules to evaluate meanwhile: NonFinite,LossNotDecreasing.")
    ] = None,
    stop: Annotated[bool, typer.Option("--stop", help="Stop when a rule finds something.")] = False,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Write TensorBoard files too.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run in --out, if there is one.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the run in --out, if there is one.")
    ] = False,
    module: Annotated[
        bool, typer.Option("-m", help="SCRIPT is the name of a module, as behind python -m.")
    ] = False,
) -> None:
    # The help is that of _HELP; a docstring here would be shown in its place.
    if program[0] == "-m":
        module, program = True, program[1:]
    if not program:
        raise SMDebugValueError("-m must be followed by the name of a module, got nothing")
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
        chosen = _choose_place(description, out, target)
        options = parse_json_config(description, "smdebug run").options
        for rule in options.rules:
            # Here, and not when training begins.
            RuleSpec(rule).needs()
        _require_free(options)
        if chosen:
            say(f"saving to {description['LocalPath']}")
    # Not run in here: the parser of the command line would meet what the script raises.
    context.obj.append(Launch(target, description))


run.__doc__ = _HELP


def _lay_over(description: dict[str, Any], parameters: dict[str, Any], save: str | None) -> None:
    """Puts what the command line says over what the job file does."""
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


def _choose_place(description: dict[str, Any], out: str | None, program: Program) -> bool:
    """Says where the run goes; True if nobody else had."""
    told = out or description.get("LocalPath")
    if told is not None:
        description["LocalPath"] = _absolute(told)
    if told or description.get("S3OutputPath") or environment.in_sagemaker():
        return False
    if environment.distributed_rank()[1] > 1:
        raise SMDebugValueError(
            "--out must be given when a job has several processes, got none: they have to agree "
            "on it"
        )
    name = program.name if program.is_module else Path(program.name).stem
    place = f"runs/{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    description["LocalPath"] = _absolute(place)
    return True


def _absolute(place: Any) -> Any:
    """A directory wherever the script goes; what is no directory is for others to judge."""
    if not isinstance(place, str) or "://" in place:
        return place
    return str(Path(place).expanduser().absolute())
