"""Rules during real training: which tensors they get, and how they stop it."""

from __future__ import annotations

import copy
import json
import math
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import smdebug.pytorch as smd
from smdebug.exceptions import RuleEvaluationConditionMet, SMDebugValueError
from smdebug.rules import rule_names
from smdebug.trials import create_trial

LIMIT = 120.0
FIVE = ["VanishingGradient", "ExplodingTensor", "LossNotDecreasing", "NonFinite", "FrozenParameter"]
EVERY = smd.SaveConfig(save_interval=1)


class Poison(torch.autograd.Function):
    """Passes a tensor on; its gradient becomes NaN."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * math.nan


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 6)
        self.fc1 = nn.Linear(6, 8)
        self.relu = nn.ReLU()
        self.fc2 = nn.Linear(8, 3)
        self.poisoned = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = self.relu(self.fc1(self.embedding(x).mean(1)))
        if self.poisoned:
            hidden = Poison.apply(hidden)
        output: torch.Tensor = self.fc2(hidden)
        return output


class Script:
    """A small training job; `poisoned_at` is the step with NaN in its backward pass."""

    def __init__(self, poisoned_at: int = -1, kind: type = torch.optim.Adam) -> None:
        torch.manual_seed(0)
        self.model, self.loss = Net(), nn.CrossEntropyLoss()
        self.optimizer = kind(self.model.parameters(), lr=0.01)
        self.poisoned_at = poisoned_at
        self.before: dict[str, torch.Tensor] = {}

    def run(self, steps: int) -> None:
        generator = torch.Generator().manual_seed(1)
        for step in range(steps):
            x = torch.randint(0, 10, (16, 5), generator=generator)
            self.model.poisoned = step == self.poisoned_at
            self.before = copy.deepcopy(self.model.state_dict())
            self.optimizer.zero_grad()
            self.loss(self.model(x), x.sum(1) % 3).backward()
            self.optimizer.step()

    def hooked(self, out_dir: Path, **options: Any) -> smd.Hook:
        hook = smd.Hook(out_dir, **options)
        hook.register_module(self.model)
        hook.register_loss(self.loss)
        return hook


def same(first: dict[str, Any], second: dict[str, Any]) -> bool:
    return all(torch.equal(first[key], second[key]) for key in first)


@pytest.mark.parametrize("every", [1, 10])
@pytest.mark.parametrize("before_update", [False, True])
def test_training_is_the_same_with_rules(tmp_path: Path, every: int, before_update: bool) -> None:
    plain, watched = Script(), Script()
    plain.run(60)
    hook = watched.hooked(
        tmp_path, rules=FIVE, before_update=before_update,
        save_config=smd.SaveConfig(save_interval=every),
    )  # fmt: skip
    watched.run(60)
    hook.close()
    assert same(plain.model.state_dict(), watched.model.state_dict())
    first, second = plain.optimizer.state_dict(), watched.optimizer.state_dict()
    for key, state in first["state"].items():
        assert same(state, second["state"][key])


def test_a_rule_stops_training(tmp_path: Path) -> None:
    script = Script(poisoned_at=50)
    hook = script.hooked(
        tmp_path, rules=["NonFinite"], on_finding="stop", save_config=EVERY, flush_seconds=0.05
    )

    def train() -> None:
        deadline = time.monotonic() + LIMIT
        while time.monotonic() < deadline:
            script.run(100)

    with pytest.raises(RuleEvaluationConditionMet) as stopped:
        train()
    assert (stopped.value.rule_name, stopped.value.step) == ("NonFinite", 50)
    assert stopped.value.tensor is not None
    assert stopped.value.tensor.startswith("gradient/")
    assert hook.closed
    trial = create_trial(str(tmp_path))
    assert trial.loaded_all_steps
    assert trial.findings()[0].step == 50


# ---- before the update


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.SGD])
@pytest.mark.parametrize("every", [1, 1000])
def test_bad_gradients_never_reach_the_weights(tmp_path: Path, kind: type, every: int) -> None:
    script = Script(poisoned_at=20, kind=kind)
    script.hooked(
        tmp_path, rules=["NonFinite"], before_update=True,
        save_config=smd.SaveConfig(save_interval=every),
    )  # fmt: skip
    with pytest.raises(RuleEvaluationConditionMet) as stopped:
        script.run(40)
    assert stopped.value.step == 20
    assert same(script.before, script.model.state_dict())
    assert all(torch.isfinite(each).all() for each in script.model.state_dict().values())
    trial = create_trial(str(tmp_path))
    finding = trial.findings()[0]
    assert (finding.rule, finding.step) == ("NonFinite", 20)
    # The backward pass goes from the loss to the input: the NaN is between fc2 and fc1.
    assert finding.tensor in ("gradient/Net_fc1.weight", "gradient/Net_fc1.bias")
    assert stopped.value.tensor == finding.tensor


def test_before_update_with_the_other_rule(tmp_path: Path) -> None:
    script = Script(poisoned_at=3)
    script.hooked(tmp_path, rules=["ExplodingTensor"], before_update=True)
    with pytest.raises(RuleEvaluationConditionMet, match="ExplodingTensor"):
        script.run(5)


def test_before_update_requires_a_suitable_rule(tmp_path: Path) -> None:
    with pytest.raises(SMDebugValueError, match="NonFinite"):
        smd.Hook(tmp_path, rules=["VanishingGradient"], before_update=True)


def test_other_optimizers_are_not_checked(tmp_path: Path) -> None:
    script = Script()
    hook = script.hooked(tmp_path, rules=["NonFinite"], before_update=True)
    script.run(2)
    other = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
    (other(torch.ones(1, 2)) * math.nan).sum().backward()
    optimizer.step()
    hook.close()
    # A closed hook looks at nothing.
    script.model.poisoned = True
    script.loss(script.model(torch.zeros(2, 5, dtype=torch.long)), torch.zeros(2).long()).backward()
    script.optimizer.step()
    assert not hook.findings()


def test_gradients_discarded_by_a_scaler_are_no_finding(tmp_path: Path) -> None:
    script = Script()
    hook = script.hooked(tmp_path, rules=["ExplodingTensor"], before_update=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)
    for _ in range(30):
        x = torch.randint(0, 10, (16, 5))
        script.optimizer.zero_grad()
        scaler.scale(script.loss(script.model(x), x.sum(1) % 3)).backward()
        scaler.step(script.optimizer)
        scaler.update()
    assert not hook.closed
    hook.close()


def test_fused_optimizer_skips_non_finite_gradients_itself(tmp_path: Path) -> None:
    script = Script()
    optimizer = torch.optim.Adam(script.model.parameters(), fused=True)
    hook = script.hooked(tmp_path, rules=["ExplodingTensor"], before_update=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)
    overflowed = 0
    for _ in range(30):
        x = torch.randint(0, 10, (16, 5))
        optimizer.zero_grad()
        # Its step is called whatever the gradients hold.
        scaler.scale(script.loss(script.model(x), x.sum(1) % 3) * 100).backward()
        gradients = [each.grad for each in script.model.parameters() if each.grad is not None]
        overflowed += not all(torch.isfinite(each).all() for each in gradients)
        scaler.step(optimizer)
        scaler.update()
    assert overflowed
    assert not hook.closed
    hook.close()


@pytest.mark.parametrize("by_keyword", [True, False])
@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam, torch.optim.LBFGS])
def test_gradients_that_a_closure_computes(tmp_path: Path, kind: type, by_keyword: bool) -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    optimizer = kind(model.parameters(), lr=0.1)
    hook = smd.Hook(tmp_path, rules=["NonFinite"], before_update=True)
    hook.register_module(model)
    scale = 1.0

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss: torch.Tensor = (model(torch.ones(3, 4)) * scale).square().sum()
        loss.backward()
        return loss

    for _ in range(3):
        loss = optimizer.step(closure=closure) if by_keyword else optimizer.step(closure)
        assert isinstance(loss, torch.Tensor)
    before, scale = copy.deepcopy(model.state_dict()), math.nan
    with pytest.raises(RuleEvaluationConditionMet, match="NonFinite"):
        optimizer.step(closure=closure) if by_keyword else optimizer.step(closure)
    assert same(before, model.state_dict())
    assert len(hook.findings()) == 1
    # A closed hook looks at nothing.
    optimizer.step(closure)


@pytest.mark.parametrize("bad", [complex(1, math.nan), complex(math.inf, 1)])
def test_both_parts_of_a_complex_gradient_count(tmp_path: Path, bad: complex) -> None:
    model = nn.Linear(2, 2, dtype=torch.complex64)
    hook = smd.Hook(tmp_path, rules=["NonFinite"], before_update=True)
    hook.register_module(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(1, 2, dtype=torch.complex64)).abs().sum().backward()
    optimizer.step()
    assert model.weight.grad is not None
    model.weight.grad[0, 0] = bad
    with pytest.raises(RuleEvaluationConditionMet, match="Linear_weight"):
        optimizer.step()


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
def test_a_compiled_step_of_an_optimizer(tmp_path: Path) -> None:
    script = Script(poisoned_at=3)
    script.hooked(tmp_path, rules=["NonFinite"], before_update=True)
    script.optimizer.step = torch.compile(script.optimizer.step, backend="eager")
    with pytest.raises(RuleEvaluationConditionMet) as stopped:
        script.run(6)
    assert stopped.value.step == 3
    assert same(script.before, script.model.state_dict())


def test_sparse_gradients_before_an_update(tmp_path: Path) -> None:
    model = nn.Embedding(10, 2, sparse=True)
    hook = smd.Hook(tmp_path, rules=["NonFinite"], before_update=True)
    hook.register_module(model)
    optimizer = torch.optim.SparseAdam(model.parameters())
    model(torch.tensor([1, 1, 3])).sum().backward()
    optimizer.step()
    before = model.weight.detach().clone()
    optimizer.zero_grad()
    (model(torch.tensor([1, 2])) * math.inf).sum().backward()
    with pytest.raises(RuleEvaluationConditionMet, match="Embedding_weight"):
        optimizer.step()
    assert torch.equal(before, model.weight)


# ---- what rules are fed with


def names(tmp_path: Path, rules: Any, collection: str) -> list[str]:
    script = Script()
    hook = script.hooked(tmp_path, rules=rules, save_config=EVERY)
    script.run(2)
    hook.close()
    trial = create_trial(str(tmp_path))
    return trial.tensor_names(collection=collection)


def test_layers_are_found_by_their_class(tmp_path: Path) -> None:
    assert names(tmp_path / "relu", ["DeadRelu"], "relu_output") == ["relu_output_0"]
    tokens = names(tmp_path / "text", ["NLPSequenceRatio"], "input_sequence")
    assert tokens == ["embedding_input_0"]
    inputs = names(tmp_path / "images", ["CheckInputImages"], "input_image")
    assert inputs == ["Net_input_0"]


def test_labels_and_predictions_are_what_the_loss_takes(tmp_path: Path) -> None:
    labels = names(tmp_path / "one", ["ClassImbalance"], "labels")
    predictions = names(tmp_path / "two", ["ClassImbalance"], "predictions")
    assert labels == ["CrossEntropyLoss_input_1"]
    assert predictions == ["CrossEntropyLoss_input_0"]


def test_layers_in_a_sequence_have_numbers_for_names(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4), nn.Sigmoid())
    with smd.Hook(tmp_path, rules=["SaturatedActivation"], save_config=EVERY) as hook:
        hook.register_module(model)
        model(torch.randn(8, 3)).sum().backward()
    trial = create_trial(str(tmp_path))
    assert trial.tensor_names() == ["1_input_0", "3_input_0"]
    assert trial.tensor_names(collection="tanh_input") == ["1_input_0"]
    assert trial.tensor_names(collection="sigmoid_input") == ["3_input_0"]


def test_frozen_parameters_are_recorded_in_the_run(tmp_path: Path) -> None:
    script = Script()
    script.model.fc1.requires_grad_(False)
    hook = script.hooked(tmp_path, rules=["FrozenParameter"], save_config=EVERY)
    script.run(8)
    frozen = hook.get_collections()["frozen_parameters"].tensor_names
    assert frozen == {"Net_fc1.weight", "Net_fc1.bias"}
    # One that trains later was meant to be frozen until then.
    script.model.fc1.requires_grad_(True)
    script.run(8)
    hook.close()
    collection = create_trial(str(tmp_path)).collection("frozen_parameters")
    assert collection.tensor_names == frozen
    assert not hook.findings()


def test_every_rule_can_be_given_to_a_hook(tmp_path: Path) -> None:
    given: list[Any] = []
    for name in rule_names():
        rule: dict[str, Any] = {"rule": name}
        if name in ("AllZero", "UnchangedTensor", "TensorVariance"):
            rule["collection_names"] = "gradients"
        if name == "TensorVariance":
            rule["max_threshold"] = "1e9"
        if name != "SimilarAcrossRuns":
            given.append(rule)
    script = Script()
    hook = script.hooked(tmp_path, rules=given, save_config=EVERY)
    script.run(12)
    hook.close()
    trial = create_trial(str(tmp_path))
    assert trial.steps() == list(range(12))
    assert len({outcome.rule for outcome in hook.rule_report().outcomes}) == len(given)
    assert {outcome.status for outcome in hook.rule_report().outcomes} >= {"passed"}
    failed = [each for each in hook.rule_report().outcomes if each.status == "failed"]
    assert not failed


# ---- several workers


@pytest.mark.parametrize("by", ["rule", "request"])
def test_ranks_stop_together(tmp_path: Path, by: str) -> None:
    program = Path(__file__).parent / "programs" / "stopped_rank.py"
    ranks = [
        subprocess.Popen([sys.executable, str(program), str(rank), str(tmp_path), by],
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for rank in range(2)
    ]  # fmt: skip
    outputs = []
    for rank in ranks:
        try:
            outputs.append(rank.communicate(timeout=LIMIT)[0])
        finally:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0, 0], "\n".join(outputs)
    first, second = (
        json.loads((tmp_path / f"rank_{rank}.json").read_text(encoding="utf-8"))
        for rank in range(2)
    )
    assert first is not None
    assert first["step"] == second["step"]
    assert first["rule"] == second["rule"]
    expected = "VanishingGradient" if by == "rule" else "StopRequest"
    assert first["rule"] == expected
    if by == "request":
        assert first["step"] == 299


# ---- torch.compile


def test_rules_leave_a_compiled_model_compiled(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ran: list[int] = []

    def backend(graph: Any, inputs: Any) -> Any:
        def run(*args: Any) -> Any:
            ran.append(1)
            return graph(*args)

        return run

    script = Script()
    inner = script.model
    script.model = torch.compile(inner, backend=backend)
    hook = script.hooked(tmp_path, rules=["NonFinite", "DeadRelu"], save_config=EVERY)
    x = torch.randint(0, 10, (16, 5))
    for _ in range(6):
        script.optimizer.zero_grad()
        script.loss(script.model(x), x.sum(1) % 3).backward()
        script.optimizer.step()
    hook.close()
    assert len(ran) == 6
    assert caplog.text.count("rules do not look into a compiled model") == 1
    names = create_trial(str(tmp_path)).tensor_names()
    assert "gradient/Net_fc1.weight" in names
    assert "Net_output_0" in names
    assert not any(name.startswith("relu_") for name in names)
