"""Runs a training script several times from one seed: bare, with a witness, and with the hook.

The witness is made of torch's own means (its forward hooks, `torch.autograd.grad`) and knows the
names that tensors are to have; what it saw is what a run has to hold. All the runs must end with
the same parameters and the same state of the random generators, bit for bit.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from smdebug import SaveConfig
from smdebug.mode_keys import ModeKeys
from smdebug.pytorch import Hook, ReductionConfig
from smdebug.trials import create_trial

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

    from smdebug.trials.trial import Trial

Script = Callable[["Watch"], Iterable[nn.Module]]
Seen = dict[int, dict[str, torch.Tensor]]

REDUCTIONS = ("l2", "mean", "abs_max", "zeros")


class Watch:
    """What a script does differently when it is watched: nothing, but for these calls.

    Args:
        hook: the hook; None when the script runs without it.
        witness: whether to collect the truth; never together with a hook.
    """

    def __init__(self, hook: Hook | None = None, witness: bool = False) -> None:
        self.hook = hook
        self.witness = witness
        self.seen: Seen = {}
        self.modes: dict[int, tuple[ModeKeys, int]] = {}
        self.step = -1
        self.roots: dict[str, nn.Module] = {}
        self._mode = ModeKeys.GLOBAL
        self._mode_steps: dict[ModeKeys, int] = {}
        self._counts: dict[str, int] = {}

    def register(self, root: nn.Module, modules: bool = True) -> Any:
        """Registers a module; `modules=False`: the script tells about its inputs and outputs."""
        name, number = type(root).__name__, 0
        while name in self.roots:
            number += 1
            name = f"{type(root).__name__}_{number}"
        paths = {path for each in self.roots.values() for path, _ in each.named_modules() if path}
        # Paths that an earlier model has too come with the name of the model.
        clash = any(path in paths for path, _ in root.named_modules())
        self.roots[name] = root
        if self.witness:
            self._attach(root, name, f"{name}_" if clash else "", modules)
        return None if self.hook is None else self.hook.register_module(root)

    def register_loss(self, loss: nn.Module) -> None:
        if self.hook is not None:
            self.hook.register_loss(loss)
        elif self.witness:
            self._attach_module(loss, type(loss).__name__)

    def set_mode(self, mode: ModeKeys) -> None:
        self._mode = mode
        if self.hook is not None:
            self.hook.set_mode(mode)

    def saw(self, name: str, tensor: torch.Tensor) -> None:
        """Says what is to be saved now."""
        if self.witness:
            self.seen[self.step][name] = tensor.detach().clone()

    def forget(self, name: str) -> None:
        """Says that what was seen under this name is not to be saved."""
        if self.witness:
            del self.seen[self.step][name]

    def parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        for name, root in self.roots.items():
            for path, parameter in root.named_parameters(remove_duplicate=False):
                yield f"{name}_{path}", parameter

    def backward(self, loss: torch.Tensor, **options: Any) -> None:
        """Run the backward pass; before it, the witness computes the expected gradients."""
        if self.witness:
            named = [(name, each) for name, each in self.parameters() if each.requires_grad]
            found = torch.autograd.grad(
                loss, [each for _, each in named], retain_graph=True, allow_unused=True
            )
            for (name, _), gradient in zip(named, found, strict=True):
                if gradient is not None:
                    self.saw(f"gradient/{name}", gradient)
        loss.backward(**options)

    def begin(self) -> None:
        """Begin a step, as the forward pass of a registered module does."""
        self.step += 1
        self._counts = {}
        mode_step = self._mode_steps[self._mode] = self._mode_steps.get(self._mode, -1) + 1
        self.modes[self.step] = (self._mode, mode_step)
        self.seen[self.step] = {}
        for name, parameter in self.parameters():
            self.saw(name, parameter)

    def _attach(self, root: nn.Module, name: str, prefix: str, modules: bool) -> None:
        root.register_forward_pre_hook(lambda *_: self.begin(), prepend=True)
        if modules:
            for path, module in root.named_modules():
                self._attach_module(module, prefix + path if path else name)

    def _attach_module(self, module: nn.Module, path: str) -> None:
        def before(module: nn.Module, args: Any, kwargs: Any) -> None:
            self._see(path, "input", args)
            for key, value in kwargs.items():
                if isinstance(value, torch.Tensor):
                    self.saw(f"{path}_input_{key}", value)

        def after(module: nn.Module, args: Any, output: Any) -> None:
            self._see(path, "output", output)

        module.register_forward_pre_hook(before, with_kwargs=True)
        module.register_forward_hook(after)

    def _see(self, path: str, kind: str, value: Any) -> None:
        for tensor in _flat(value):
            number = self._counts.get(f"{path}_{kind}", 0)
            self._counts[f"{path}_{kind}"] = number + 1
            self.saw(f"{path}_{kind}_{number}", tensor)


def _flat(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        for each in value:
            yield from _flat(each)


@dataclass
class End:
    """How a script ended."""

    watch: Watch
    state: list[dict[str, torch.Tensor]]
    generators: list[Any]
    hooks: list[str]


def run_script(script: Script, watch: Watch) -> End:
    """Runs a script from the seed."""
    torch.manual_seed(7)
    np.random.seed(7)
    random.seed(7)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        modules = list(script(watch))
    finally:
        torch.set_num_threads(threads)
    state = [{key: _copied(each) for key, each in m.state_dict().items()} for m in modules]
    generators = [torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()]  # type: ignore[index]
    if watch.hook is not None:
        watch.hook.close()
    hooks = [each for module in modules for each in hooks_left(module)]
    return End(watch, state, generators, hooks)


def _copied(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def hooks_left(module: nn.Module) -> list[str]:
    """The hooks that modules and parameters carry."""
    kinds = [
        *("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"),
        *("_state_dict_pre_hooks", "_state_dict_hooks", "_load_state_dict_pre_hooks"),
    ]
    found = [
        f"{path}: {kind}"
        for path, each in module.named_modules()
        for kind in kinds
        if getattr(each, kind, None)
    ]
    for path, parameter in module.named_parameters():
        if parameter._backward_hooks:
            found.append(f"{path}: _backward_hooks")
    return found


def assert_same_end(first: End, second: End) -> None:
    """Training has to be the same, bit for bit."""
    assert len(first.state) == len(second.state)
    for one, other in zip(first.state, second.state, strict=True):
        assert list(one) == list(other)
        for key, value in one.items():
            if isinstance(value, torch.Tensor):
                assert bits(value) == bits(other[key]), key
            else:
                assert value == other[key], key
    if not (first.watch.witness or second.watch.witness):
        assert first.hooks == second.hooks
    assert torch.equal(first.generators[0], second.generators[0])
    assert first.generators[1:] == second.generators[1:]


def bits(tensor: torch.Tensor) -> tuple[str, tuple[int, ...], bytes]:
    """A tensor as its type, shape and bytes."""
    tensor = tensor.detach()
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    name = str(tensor.dtype).removeprefix("torch.")
    flat = tensor.resolve_conj().resolve_neg().reshape(-1).contiguous()
    memory = flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
    return name, tuple(tensor.shape), memory


def array_bits(array: npt.NDArray[Any]) -> tuple[str, tuple[int, ...], bytes]:
    """An array as its type, shape and bytes."""
    return array.dtype.name, array.shape, array.tobytes()


def saved(trial: Trial) -> dict[int, dict[str, npt.NDArray[Any]]]:
    """Everything that a run holds, by step."""
    found: dict[int, dict[str, npt.NDArray[Any]]] = {}
    for name in trial.tensor_names():
        for step, value in trial.tensor(name).values().items():
            found.setdefault(step, {})[name] = value
    return found


def assert_saved(trial: Trial, expected: Mapping[int, Mapping[str, torch.Tensor]]) -> None:
    """The run has to hold these tensors, these bits, and nothing else."""
    found = saved(trial)
    assert {step: sorted(each) for step, each in found.items()} == {
        step: sorted(each) for step, each in expected.items() if each
    }
    for step, tensors in expected.items():
        for name, tensor in tensors.items():
            assert array_bits(found[step][name]) == bits(tensor), (step, name)


def assert_reductions_saved(
    trial: Trial, expected: Mapping[int, Mapping[str, torch.Tensor]]
) -> None:
    """The run has to hold the reductions of these tensors and nothing else."""
    steps: dict[int, list[str]] = {}
    for name in trial.tensor_names():
        for step in trial.tensor(name).steps():
            steps.setdefault(step, []).append(name)
    assert {step: sorted(each) for step, each in steps.items()} == {
        step: sorted(each) for step, each in expected.items() if each
    }
    for step, tensors in expected.items():
        for name, tensor in tensors.items():
            found = trial.tensor(name).reduction_values(step)
            numbers = {("abs_" if absolute else "") + key: value
                       for (key, absolute), value in found.items()}  # fmt: skip
            assert sorted(numbers) == sorted(REDUCTIONS), (step, name)
            for key, value in numbers.items():
                # A mean near zero is what is left of larger numbers.
                near = 1e-6 * _reduction(tensor, "abs_max") if key == "mean" else 0
                np.testing.assert_allclose(
                    value, _reduction(tensor, key), 1e-6, near, err_msg=f"{step} {name} {key}"
                )
            assert trial.tensor(name).shape(step) == tuple(tensor.shape)


def _reduction(tensor: torch.Tensor, name: str) -> float:
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    wide = tensor.float().double() if tensor.dtype.itemsize < 4 else tensor.double()
    if name == "l2":
        return float((wide**2).sum().sqrt())
    if name == "mean":
        return float(wide.mean())
    if name == "abs_max":
        return float(wide.abs().max())
    assert name == "zeros"
    return float((wide == 0).sum())


def check_script(script: Script, folder: Path, **options: Any) -> End:
    """Runs a script in all ways and compares; returns what the witness saw.

    Args:
        script: trains; returns the modules to compare at the end.
        folder: a new one.
        options: further ones for all hooks.
    """
    bare = run_script(script, Watch())
    end = run_script(script, Watch(witness=True))
    assert_same_end(bare, end)
    watch = end.watch

    # Everything at every step.
    hook = Hook(folder / "all", save_all=True, **_everything(options, 1))
    hooked = run_script(script, Watch(hook))
    assert_same_end(bare, hooked)
    trial = create_trial(str(folder / "all"))
    assert_saved(trial, watch.seen)
    for step, (mode, mode_step) in watch.modes.items():
        if watch.seen[step]:
            assert trial.mode_modestep(step) == (mode, mode_step)
    assert hook.step == watch.step

    # Weights and gradients, now and then.
    config = SaveConfig(save_interval=3, save_steps=[1])
    hook = Hook(
        folder / "some",
        include_collections=["weights", "gradients"],
        save_config=config,
        on_error="raise",
        **options,
    )
    assert_same_end(bare, run_script(script, Watch(hook)))
    some = {
        step: {
            name: tensor
            for name, tensor in tensors.items()
            if config.should_save_step(*watch.modes[step]) and _among(name, watch.modes[step][0])
        }
        for step, tensors in watch.seen.items()
    }
    assert_saved(create_trial(str(folder / "some")), some)

    # Numbers only, at every other step.
    numbers = ReductionConfig(reductions=["mean", "zeros"], norms=["l2"], abs_reductions=["max"])
    hook = Hook(
        folder / "numbers",
        include_regex="weight|bias|gradient|_output_",
        reduction_config=numbers,
        **_everything(options, 2),
    )
    hook.get_collection("losses").save_config = SaveConfig(end_step=0)
    assert_same_end(bare, run_script(script, Watch(hook)))
    wanted = {
        step: {
            name: tensor
            for name, tensor in tensors.items()
            if watch.modes[step][1] % 2 == 0
            and any(part in name for part in ("weight", "bias", "gradient", "_output_"))
            and tensor.numel()
        }
        for step, tensors in watch.seen.items()
    }
    assert_reductions_saved(create_trial(str(folder / "numbers")), wanted)
    return end


def _everything(options: dict[str, Any], interval: int) -> dict[str, Any]:
    return {"on_error": "raise", "save_config": SaveConfig(save_interval=interval), **options}


def _among(name: str, mode: ModeKeys) -> bool:
    """Whether a tensor is a weight, a loss, or a gradient of a training step."""
    if name.startswith("gradient/"):
        return mode not in (ModeKeys.EVAL, ModeKeys.PREDICT)
    return "weight" in name or "oss_output" in name
