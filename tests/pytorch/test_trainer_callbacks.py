"""The callbacks for the trainers of Hugging Face and of Lightning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lightning
import pytest
import torch
import transformers
from torch import nn
from torch.utils.data import DataLoader

import smdebug.pytorch as smd
from smdebug import modes
from smdebug.exceptions import SMDebugError, SMDebugTypeError
from smdebug.pytorch.backward_losses import BackwardLosses

if TYPE_CHECKING:
    from pathlib import Path

    from smdebug.trials import Trial

EVERY_STEP = smd.SaveConfig(save_interval=1)


class Classifier(nn.Module):
    """A model as the Trainer of Hugging Face expects it: it computes its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, inputs: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.layer(inputs)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class Regressor(lightning.LightningModule):
    """A module with a `forward` that is called in training and not in validation."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.layer(inputs)

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        loss = self(batch).square().mean()
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch: torch.Tensor, batch_idx: int) -> None:
        self.log("val_loss", self.layer(batch).square().mean())

    def predict_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        return self(batch)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def huggingface(directory: Path, callbacks: list[Any]) -> tuple[Classifier, list[dict[str, Any]]]:
    transformers.set_seed(1)
    model = Classifier()
    data = [{"inputs": torch.randn(4), "labels": number % 3} for number in range(16)]
    arguments = transformers.TrainingArguments(
        str(directory), num_train_epochs=2, per_device_train_batch_size=4, logging_steps=1,
        eval_strategy="epoch", save_strategy="no", report_to="none", disable_tqdm=True,
        use_cpu=True, logging_nan_inf_filter=False,
    )  # fmt: skip
    trainer = transformers.Trainer(
        model, arguments, train_dataset=data, eval_dataset=data[:4], callbacks=callbacks
    )
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train()
    return model, trainer.state.log_history


def fit(module: Any, callbacks: list[Any]) -> lightning.Trainer:
    trainer = lightning.Trainer(
        max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
        callbacks=callbacks,
    )  # fmt: skip
    data = torch.arange(48.0).reshape(12, 4) / 48
    trainer.fit(module, DataLoader(data, batch_size=4), DataLoader(data[:4], batch_size=4))
    return trainer


def regressor() -> Regressor:
    torch.manual_seed(2)
    return Regressor()


def losses_of(trial: Trial, name: str, mode: modes) -> list[float]:
    tensor = trial.tensor(name)
    return [tensor.value(step, mode=mode).item() for step in tensor.steps(mode=mode)]


def parameters(model: nn.Module) -> list[torch.Tensor]:
    return [each.detach() for each in model.parameters()]


# Lightning, and what it imports, use what their dependencies deprecate.
pytestmark = pytest.mark.filterwarnings("ignore")


def test_hugging_face(tmp_path: Path) -> None:
    alone, _ = huggingface(tmp_path / "alone", [])
    collections = ["weights", "gradients"]
    callback = smd.TrainerCallback(
        tmp_path / "run", include_collections=collections, save_config=EVERY_STEP
    )
    model, logged = huggingface(tmp_path / "watched", [callback])
    assert all(map(torch.equal, parameters(alone), parameters(model)))
    callback.hook.close()
    trial = smd.create_trial(str(tmp_path / "run"))
    assert trial.steps(mode=modes.TRAIN) == list(range(8))
    assert trial.steps(mode=modes.EVAL) == [0, 1]
    losses = [entry["loss"] for entry in logged if "loss" in entry]
    assert losses_of(trial, "loss_output_0", modes.TRAIN) == pytest.approx(losses, abs=1e-4)
    assert losses_of(trial, "scalar/loss", modes.TRAIN) == losses
    evaluated = [entry["eval_loss"] for entry in logged if "eval_loss" in entry]
    assert losses_of(trial, "scalar/eval_loss", modes.EVAL) == evaluated
    assert trial.tensor_names(collection="gradients") == [
        "gradient/Classifier_layer.bias", "gradient/Classifier_layer.weight",
    ]  # fmt: skip


def test_lightning(tmp_path: Path) -> None:
    alone = regressor()
    fit(alone, [])
    hook = smd.Hook(tmp_path / "run", save_all=True, save_config=EVERY_STEP)
    model = regressor()
    trainer = fit(model, [smd.LightningCallback(hook)])
    assert all(map(torch.equal, parameters(alone), parameters(model)))
    logged = float(trainer.callback_metrics["val_loss"])
    trainer.predict(model, DataLoader(torch.ones(4, 4), batch_size=4))
    hook.close()
    trial = smd.create_trial(str(tmp_path / "run"))
    assert trial.steps(mode=modes.TRAIN) == list(range(6))
    assert trial.steps(mode=modes.EVAL) == [0, 1]
    assert trial.steps(mode=modes.PREDICT) == [0]
    losses = losses_of(trial, "loss_output_0", modes.TRAIN)
    assert losses == losses_of(trial, "scalar/train_loss", modes.TRAIN)
    validated = losses_of(trial, "scalar/val_loss", modes.EVAL)
    assert validated[-1] == logged
    assert trial.tensor("layer_output_0").steps(mode=modes.TRAIN) == list(range(6))
    # Its `forward` is not called there; its parts are.
    assert trial.tensor("layer_output_0").steps(mode=modes.EVAL) == [0, 1]
    assert trial.tensor("Regressor_output_0").steps(mode=modes.EVAL) == []
    weight = trial.tensor("Regressor_layer.weight")
    gradient = trial.tensor("gradient/Regressor_layer.weight")
    for step in range(2):
        moved = weight.value(step, mode=modes.TRAIN) - 0.1 * gradient.value(step, mode=modes.TRAIN)
        assert moved == pytest.approx(weight.value(step + 1, mode=modes.TRAIN), abs=1e-6)


def test_model_is_restored(tmp_path: Path) -> None:
    backward = torch.autograd.backward
    model = regressor()
    fit(model, [smd.LightningCallback(tmp_path / "run")])
    assert torch.autograd.backward is backward
    assert not model._forward_pre_hooks
    assert not model.layer._forward_hooks


def test_nothing_more_is_saved_through_a_wrapper_of_another_library(tmp_path: Path) -> None:
    hook = smd.Hook(tmp_path / "run", save_config=EVERY_STEP)
    model = nn.Linear(2, 1)
    hook.register_module(model)
    original = torch.autograd.backward
    losses = BackwardLosses(lambda: hook)
    replacement = torch.autograd.backward
    # Another library keeps calling what it has found.
    torch.autograd.backward = lambda *args, **kwargs: replacement(*args, **kwargs)
    try:
        for number in range(4):
            if number == 2:
                losses.remove()
            model(torch.ones(1, 2)).sum().backward()
    finally:
        torch.autograd.backward = original
    hook.close()
    assert smd.create_trial(str(tmp_path / "run")).tensor("loss_output_0").steps() == [0, 1]


@pytest.mark.parametrize("kind", [smd.TrainerCallback, smd.LightningCallback])
def test_invalid_arguments(kind: Any, tmp_path: Path) -> None:
    with pytest.raises(SMDebugTypeError, match="a Hook, a directory or a URL, got 3"):
        kind(3)
    hook = smd.Hook(tmp_path / "run")
    with pytest.raises(SMDebugTypeError, match="Cannot change save_all of an existing hook"):
        kind(hook, save_all=True)


def test_begin_step_requires_a_registered_module(tmp_path: Path) -> None:
    hook = smd.Hook(tmp_path / "run")
    with pytest.raises(SMDebugError, match="must be registered first"):
        hook.begin_step(nn.Linear(1, 1))


def test_backward_pass_before_the_first_step_of_a_resumed_job(tmp_path: Path) -> None:
    with smd.Hook(tmp_path / "run", save_config=EVERY_STEP) as first:
        fit(regressor(), [smd.LightningCallback(first)])
    hook = smd.Hook(tmp_path / "run", save_config=EVERY_STEP, resume=True)
    before = hook.step
    losses = BackwardLosses(lambda: hook)
    try:
        torch.ones(1, requires_grad=True).sum().backward()
    finally:
        losses.remove()
    hook.close()
    assert before >= 0
    trial = smd.create_trial(str(tmp_path / "run"))
    assert trial.steps() == list(range(before + 1))
