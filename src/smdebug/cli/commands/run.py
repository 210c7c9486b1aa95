"""`smdebug run`: zero-code instrumentation of a training script."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads annotations at run time
from typing import Annotated

import typer

from smdebug.exceptions import SMDebugValueError

_HELP = (
    "Run a training script with a hook on the model it trains, without code changes.\n\n"
    "PyTorch (also Lightning, Hugging Face, accelerate), Keras, XGBoost and MXNet Gluon are "
    "detected. Arguments after the script are passed to it.\n\n"
    "Examples:\n\n"
    "    smdebug run --save weights,gradients --every 100 -- train.py --epochs 3\n\n"
    "    smdebug run --rules VanishingGradient,NonFinite --stop -- train.py\n\n"
    "    python -m smdebug run --config hook.json -m my_package.train --lr 0.1\n\n"
    "    torchrun --nproc-per-node 2 -m smdebug run --out runs/one -- train.py\n\n"
)


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
        typer.Option(help="The directory or URL of the run.", show_default="runs/SCRIPT-TIME"),
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
        typer.Option(help="Reductions to save instead of tensors: mean,l2_norm."),
    ] = None,
    rules: Annotated[
        str | None,
        typer.Option(help="Rules to evaluate during training: NonFinite,LossNotDecreasing."),
    ] = None,
    stop: Annotated[bool, typer.Option("--stop", help="Stop when a rule finds something.")] = False,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Also write TensorBoard files.")
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
    from smdebug.cli.launch import Launch, describe
    from smdebug.cli.program import Program
    from smdebug.config import environment

    if program[0] == "-m":
        module, program = True, program[1:]
    if not program:
        raise SMDebugValueError("-m must be followed by the name of a module")
    target = Program(program[0], program[1:], is_module=module)
    target.check()
    description = None
    if environment.use_smdebug():
        parameters = {
            "save_interval": every,
            "reductions": reductions,
            "rules": rules,
            "on_finding": "stop" if stop else None,
            "export_tensorboard": True if tensorboard else None,
            "resume": True if resume else None,
            "overwrite": True if overwrite else None,
        }
        description = describe(target, config, out, save, parameters)
    # Run later: here the command line parser would catch the exceptions of the script.
    context.obj.append(Launch(target, description))


run.__doc__ = _HELP
