"""Rules during training with MXNet: what they require is saved, and they can stop it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import mxnet as mx
import numpy as np
import pytest
from mxnet import gluon
from mxnet.gluon import nn

import smdebug.mxnet as smd
from smdebug.exceptions import RuleEvaluationConditionMet, SMDebugValueError

if TYPE_CHECKING:
    from pathlib import Path

EVERY = smd.SaveConfig(save_interval=1)


def make_net() -> Any:
    mx.random.seed(2)
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(nn.Dense(6, activation="relu"), nn.Dense(6, activation="tanh"), nn.Dense(2))
    net.initialize(mx.init.Xavier())
    return net


def train(hook: smd.Hook, net: Any, steps: int, scale: float = 1.0) -> None:
    loss = gluon.loss.SoftmaxCrossEntropyLoss(prefix="loss0_")
    hook.register_block(net)
    hook.register_block(loss)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    for _ in range(steps):
        inputs = mx.nd.random.normal(shape=(16, 4)) * scale
        with mx.autograd.record():
            value = loss(net(inputs), inputs.sum(axis=1) > 0)
        value.backward()
        trainer.step(16)


def test_a_healthy_training_passes(tmp_path: Path) -> None:
    rules = ["VanishingGradient", "NonFinite", "DeadRelu", "SaturatedActivation", "FrozenParameter"]
    hook = smd.Hook(tmp_path / "run", rules=rules, on_finding="stop", save_config=EVERY)
    train(hook, make_net(), 40)
    hook.close()
    assert hook.findings() == []
    assert str(hook.rule_report()).count("passed") == len(rules)


def test_a_rule_stops_the_training(tmp_path: Path) -> None:
    net = make_net()
    hook = smd.Hook(
        tmp_path / "run", rules=["NonFinite"], on_finding="stop", save_config=EVERY,
        flush_seconds=0.01,
    )  # fmt: skip
    net(mx.nd.ones((1, 4)))
    net[2].weight.set_data(net[2].weight.data() * np.nan)
    with pytest.raises(RuleEvaluationConditionMet, match="NonFinite"):
        train(hook, net, 100_000)
    assert hook.closed
    assert hook.findings()[0].rule == "NonFinite"
    trial = smd.create_trial(hook.out_dir)
    assert trial.findings()
    # Nothing is left on the net: it can be trained on.
    assert not net._forward_hooks
    assert not net._forward_pre_hooks


def test_layers_required_by_rules(tmp_path: Path) -> None:
    rules = ["DeadRelu", "SaturatedActivation", "ClassImbalance", "CheckInputImages"]
    hook = smd.Hook(tmp_path / "run", rules=rules, save_config=EVERY)
    train(hook, make_net(), 3)
    hook.close()
    assert smd.create_trial(hook.out_dir).tensor_names() == [
        "loss0_input_0", "loss0_input_1", "loss0_output_0", "net_dense0_relu_output_0",
        "net_dense1_tanh_input_0", "net_input_0",
    ]  # fmt: skip


def test_dead_relus_are_found(tmp_path: Path) -> None:
    net = make_net()
    net(mx.nd.ones((1, 4)))
    net[0].bias.set_data(net[0].bias.data() - 1000)
    hook = smd.Hook(tmp_path / "run", rules=["DeadRelu"], save_config=EVERY)
    train(hook, net, 12)
    hook.close()
    assert {each.tensor for each in hook.findings()} == {"net_dense0_relu_output_0"}


def test_parameters_excluded_from_training(tmp_path: Path) -> None:
    net = make_net()
    net[0].collect_params().setattr("grad_req", "null")
    hook = smd.Hook(
        tmp_path / "run", rules=["FrozenParameter"], save_config=EVERY,
        include_collections=["gradients", "weights"],
    )  # fmt: skip
    train(hook, net, 30)
    hook.close()
    trial = smd.create_trial(hook.out_dir)
    # They are frozen on purpose: they are recorded, and are no finding.
    assert set(trial.collections()["frozen_parameters"].tensor_names) == {
        "net_dense0_weight", "net_dense0_bias",
    }  # fmt: skip
    assert hook.findings() == []
    assert "gradient/net_dense0_weight" not in trial.tensor_names()


def test_unsupported_options_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(SMDebugValueError, match="before_update"):
        smd.Hook(tmp_path / "run", rules=["NonFinite"], before_update=True)


def test_hidden_layers_required_by_rules(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    net = make_net()
    net.hybridize()
    hook = smd.Hook(tmp_path / "run", rules=["DeadRelu"], save_config=EVERY)
    with caplog.at_level(logging.WARNING):
        train(hook, net, 3)
    hook.close()
    said = [each.getMessage() for each in caplog.records if "is hybridized" in each.getMessage()]
    assert len(said) == 1
    assert "net_dense0_relu" in said[0]
    assert "hybridize(active=False)" in said[0]
