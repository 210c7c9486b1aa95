"""Collections as scripts for Tornasole and smdebug 1.0 use them; each with its own schedule."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import mxnet as mx
import numpy as np
import pytest
from mxnet import gluon
from mxnet.gluon import nn

import smdebug.mxnet as smd
from smdebug.exceptions import SMDebugTypeError

if TYPE_CHECKING:
    from pathlib import Path

    from smdebug.trials import Trial

EVERY = smd.SaveConfig(save_interval=1)


def make_net() -> Any:
    mx.random.seed(1)
    net = nn.Sequential(prefix="net_")
    with net.name_scope():
        net.add(nn.Dense(5, activation="relu"), nn.Dense(4, activation="tanh"), nn.Dense(3))
    net.initialize(mx.init.Xavier())
    return net


def trained(hook: smd.Hook, net: Any = None, steps: int = 6) -> Trial:
    """Trains with a hook for some steps; returns what it wrote."""
    net = make_net() if net is None else net
    loss = gluon.loss.L2Loss(prefix="l2loss0_")
    hook.register_block(net)
    hook.register_block(loss)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    for number in range(steps):
        inputs = mx.nd.ones((2, 4)) * (number + 1)
        with mx.autograd.record():
            value = loss(net(inputs), mx.nd.ones((2, 3)))
        value.backward()
        trainer.step(2)
    hook.close()
    return smd.create_trial(hook.out_dir)


def steps_of(trial: Trial) -> dict[str, list[int]]:
    return {name: trial.tensor(name).steps() for name in trial.tensor_names()}


def test_the_default_is_losses(tmp_path: Path) -> None:
    trial = trained(smd.Hook(tmp_path / "run", save_config=EVERY))
    assert steps_of(trial) == {"l2loss0_output_0": [0, 1, 2, 3, 4, 5]}
    assert trial.tensor("l2loss0_output_0").value(0).shape == (2,)


def test_collections_that_are_there(tmp_path: Path) -> None:
    included = ["weights", "bias", "gradients"]
    trial = trained(smd.Hook(tmp_path / "run", save_config=EVERY, include_collections=included))
    weights = [f"net_dense{number}_weight" for number in range(3)]
    biases = [f"net_dense{number}_bias" for number in range(3)]
    assert trial.tensor_names(collection="weights") == weights
    assert trial.tensor_names(collection="biases") == biases
    gradients = sorted(f"gradient/{name}" for name in (*weights, *biases))
    assert trial.tensor_names(collection="gradients") == gradients
    assert len(trial.tensor_names()) == 13


def test_a_regex_with_a_schedule_and_reductions(tmp_path: Path) -> None:
    # Before there is a hook, as the oldest scripts do it.
    relu = smd.get_collection("ReluActivation")
    relu.include(["relu*"])
    relu.set_save_config(smd.SaveConfig(save_interval=3))
    relu.set_reduction_config(
        smd.ReductionConfig(reductions=["min", "std", "variance", "median"], norms=["l2"])
    )
    hook = smd.Hook(
        tmp_path / "run", save_config=EVERY, include_collections=["ReluActivation", "gradients"]
    )
    trial = trained(hook)
    assert trial.tensor("net_dense0_relu_output_0").steps() == [0, 3]
    assert trial.tensor("gradient/net_dense0_weight").steps() == [0, 1, 2, 3, 4, 5]
    tensor = trial.tensor("net_dense0_relu_output_0")
    assert set(tensor.reduction_values(3)) == {
        ("min", False), ("std", False), ("variance", False), ("median", False), ("l2", False),
    }  # fmt: skip
    assert not tensor.values()


def test_one_hook_for_all_modes(tmp_path: Path) -> None:
    hook = smd.Hook(
        tmp_path / "run",
        include_collections=["weights"],
        save_config={
            smd.modes.TRAIN: smd.SaveConfigMode(save_interval=2),
            smd.modes.EVAL: smd.SaveConfigMode(save_interval=3),
        },
    )
    net, loss = make_net(), gluon.loss.L2Loss(prefix="loss0_")
    hook.register_block(net)
    hook.register_block(loss)
    for mode in (smd.modes.TRAIN, smd.modes.EVAL) * 2:
        hook.set_mode(mode)
        for _ in range(4):
            loss(net(mx.nd.ones((2, 4))), mx.nd.ones((2, 3)))
    hook.close()
    trial = smd.create_trial(hook.out_dir)
    assert trial.steps(mode=smd.modes.TRAIN) == [0, 2, 4, 6]
    assert trial.steps(mode=smd.modes.EVAL) == [0, 3, 6]
    assert trial.tensor("net_dense0_weight").steps(mode=smd.modes.EVAL) == [0, 3, 6]


def test_blocks_parameters_and_names(tmp_path: Path) -> None:
    net = make_net()
    hook = smd.Hook(tmp_path / "run", save_config=EVERY, include_collections=["mine", "block"])
    mine = hook.get_collection("mine")
    mine.add_block_tensors(net[1], inputs=True, outputs=False)
    mine.add([net[0].weight, "gradient/net_dense0_bias"])
    hook.add_to_collection("block", net[2])
    trial = trained(hook, net)
    assert trial.tensor_names(collection="mine") == [
        "gradient/net_dense0_bias", "net_dense0_weight", "net_dense1_input_0",
    ]  # fmt: skip
    assert trial.tensor_names(collection="block") == [
        "net_dense2_bias", "net_dense2_output_0", "net_dense2_weight",
    ]  # fmt: skip


@pytest.mark.parametrize("value", [mx.nd.ones(2), None, 5], ids=["NDArray", "None", "number"])
def test_names_that_are_in_no_collection(value: Any) -> None:
    with pytest.raises(SMDebugTypeError, match="collection 'mine'"):
        smd.get_collection("mine").add(value)
    with pytest.raises(SMDebugTypeError, match=r"block must be a mxnet.gluon.Block, got"):
        smd.get_collection("mine").add_block_tensors(value)


def test_functions_of_the_module(tmp_path: Path) -> None:
    smd.add_to_collection("mine", "net_dense0_weight")
    smd.add_to_default_collection("net_dense1_weight")
    hook = smd.Hook(
        tmp_path / "run", save_config=EVERY, include_collections=["mine", "default"],
    )  # fmt: skip
    assert {"mine", "default", "weights"} <= set(smd.get_collections())
    assert smd.get_collection("mine") is hook.get_collection("mine")
    assert set(steps_of(trained(hook))) == {
        "net_dense0_weight", "net_dense1_weight", "l2loss0_output_0",
    }  # fmt: skip


def test_a_json_config(tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    file.write_text(
        json.dumps(
            {
                "LocalPath": str(tmp_path / "run"),
                "HookParameters": {"save_interval": "2"},
                "CollectionConfigurations": [
                    {"CollectionName": "gradients"},
                    {
                        "CollectionName": "relu",
                        "CollectionParameters": {
                            "include_regex": "relu_output", "reductions": "mean,std",
                        },
                    },
                ],
            }
        )
    )  # fmt: skip
    hook = smd.get_hook(str(file))
    assert hook is smd.get_hook()
    assert hook is not None
    trial = trained(hook)
    assert trial.steps() == [0, 2, 4]
    assert trial.tensor_names(collection="relu") == ["net_dense0_relu_output_0"]
    assert len(trial.tensor_names(collection="gradients")) == 6


def test_values_saved_by_the_user(tmp_path: Path) -> None:
    hook = smd.Hook(tmp_path / "run", save_config=EVERY)
    net = make_net()
    hook.register_block(net)
    for number in range(3):
        out = net(mx.nd.ones((2, 4)))
        hook.save_scalar("number", mx.nd.array([number]))
        hook.save_tensor("scores", out, ["scores", "others"])
        # What was saved is what was there, whatever becomes of it.
        expected = out.asnumpy()
        out[:] = -1
    hook.close()
    trial = smd.create_trial(hook.out_dir)
    assert [float(trial.tensor("scalar/number").value(step)[0]) for step in range(3)] == [0, 1, 2]
    np.testing.assert_array_equal(trial.tensor("scores").value(2), expected)
    assert trial.tensor_names(collection="others") == ["scores"]


def test_flush_in_the_middle_of_a_step(tmp_path: Path) -> None:
    net = make_net()
    hook = smd.Hook(tmp_path / "run", save_config=EVERY, include_collections=["weights"])
    hook.register_block(net)
    net(mx.nd.ones((2, 4)))
    hook.flush()
    before = net[0].weight.data().asnumpy()
    trial = smd.create_trial(hook.out_dir)
    np.testing.assert_array_equal(trial.tensor("net_dense0_weight").value(0), before)
    net[0].weight.set_data(net[0].weight.data() + 1)
    hook.close()
    # What the step ends with counts.
    trial = smd.create_trial(hook.out_dir)
    np.testing.assert_array_equal(trial.tensor("net_dense0_weight").value(0), before + 1)


def test_user_tensors_between_steps_of_two_modes(tmp_path: Path) -> None:
    """Only the current step gets parameters, whatever else is handed over with it."""
    net, data = make_net(), mx.nd.ones((2, 4))
    hook = smd.Hook(tmp_path / "run", save_config=EVERY, include_collections=["weights"])
    hook.register_block(net)
    hook.set_mode(smd.modes.TRAIN)
    net(data)
    hook.save_tensor("train", data, "mine")
    hook.set_mode(smd.modes.EVAL)
    hook.save_tensor("eval", data, "mine")
    hook.flush()
    trial = smd.create_trial(hook.out_dir)
    assert trial.tensor_names(step=1) == ["eval"]
    net[0].weight.set_data(net[0].weight.data() + 1)
    updated = net[0].weight.data().asnumpy()
    net(data)
    net[0].weight.set_data(net[0].weight.data() + 1)
    hook.set_mode(smd.modes.TRAIN)
    hook.save_tensor("late", data, "mine")
    hook.close()
    trial = smd.create_trial(hook.out_dir)
    weights = [f"net_dense{number}_weight" for number in range(3)]
    assert trial.tensor_names(step=0) == sorted(["late", "train", *weights])
    assert trial.tensor_names(step=1) == sorted(["eval", *weights])
    assert [trial.mode(step) for step in trial.steps()] == [smd.modes.TRAIN, smd.modes.EVAL]
    for step in (0, 1):
        found = trial.tensor("net_dense0_weight").value(step)
        np.testing.assert_array_equal(found, updated + step)


def test_two_nets_with_the_same_names(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    hook = smd.Hook(tmp_path / "run")
    hook.register_block(nn.Dense(2, prefix="one_"))
    hook.register_block(nn.Dense(2, prefix="other_"))
    assert not caplog.records
    hook.register_block(nn.Dense(2, prefix="one_"))
    (said,) = caplog.messages
    assert "one_weight" in said
    assert "prefixes" in said
