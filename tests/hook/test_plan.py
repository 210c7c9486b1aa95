"""Which tensors are saved at a step, and what of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from smdebug.config.collection import Collection
from smdebug.config.options import HookOptions
from smdebug.config.reduction_config import ReductionConfig
from smdebug.config.save_config import SaveConfig, SaveConfigMode
from smdebug.hook.plan import SavePlan, SaveRequest
from smdebug.mode_keys import ModeKeys

if TYPE_CHECKING:
    from collections.abc import Iterable

    from smdebug.hook.plan import StepPlan

TRAIN, EVAL, PREDICT, GLOBAL = ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.PREDICT, ModeKeys.GLOBAL


def plan_of(
    *collections: Collection, included: Iterable[str] | None = None, **options: Any
) -> SavePlan:
    by_name = {each.name: each for each in collections}
    names = set(by_name if included is None else included)
    return SavePlan(by_name, names, HookOptions(out_dir="run", **options))


def at(plan: SavePlan, step: int, mode: ModeKeys = TRAIN) -> StepPlan:
    found = plan.at(mode, step)
    assert found is not None
    return found


def every(interval: int, **fields: Any) -> SaveConfig:
    return SaveConfig(save_interval=interval, **fields)


def test_collection_inherits_unset_configuration_from_the_hook() -> None:
    own = Collection("own", "a", save_config=every(3), reduction_config=ReductionConfig(["min"]))
    plan = plan_of(
        own, Collection("open", "b"), Collection("losses", "c"),
        save_config=every(2), reduction_config=ReductionConfig(["max"]),
    )  # fmt: skip
    assert [step for step in range(7) if plan.at(TRAIN, step) is not None] == [0, 2, 3, 4, 6]
    assert at(plan, 0).request("a") == SaveRequest(False, ("min",), ("own",))
    assert at(plan, 0).request("b") == SaveRequest(False, ("max",), ("open",))
    # Numbers are saved as they are.
    assert at(plan, 0).request("c") == SaveRequest(True, (), ("losses",))
    assert at(plan, 0).request("d") is None
    assert at(plan, 3).request("b") is None
    assert own.save_config == every(3)


def test_unset_mode_uses_the_hooks_configuration() -> None:
    schedule = {EVAL: SaveConfigMode(save_interval=1)}
    plan = plan_of(Collection("a", "a", save_config=schedule), save_config=every(4))
    assert [step for step in range(6) if plan.at(TRAIN, step) is not None] == [0, 4]
    assert all(plan.at(EVAL, step) is not None for step in range(6))


def test_collections_that_are_not_included_are_resolved_and_not_saved() -> None:
    plan = plan_of(Collection("a", "a"), Collection("b", "b"), included=["a"], save_config=every(1))
    assert at(plan, 0).request("b") is None
    assert [each.name for each in at(plan, 0).saving] == ["a"]
    assert plan.collections["b"].save_config == every(1)


def test_no_included_collections_make_an_empty_plan() -> None:
    plan = plan_of(Collection("a", "a"), included=[], save_config=every(1))
    assert plan.at(TRAIN, 0) is None


@pytest.mark.parametrize("name", ["gradients", "optimizer_variables"])
@pytest.mark.parametrize("mode", [EVAL, PREDICT])
def test_gradients_are_saved_in_training_only(name: str, mode: ModeKeys) -> None:
    plan = plan_of(Collection(name, "x"), Collection("weights", "w"), save_config=every(1))
    assert at(plan, 0, TRAIN).request("x") is not None
    assert at(plan, 0, GLOBAL).request("x") is not None
    assert at(plan, 0, mode).request("x") is None
    assert at(plan, 0, mode).request("w") is not None


def test_tensor_of_several_collections_gets_all_their_reductions() -> None:
    plan = plan_of(
        Collection("a", "x", reduction_config=ReductionConfig(["min", "max"])),
        Collection("b", "x", reduction_config=ReductionConfig(["max"], norms=["l2"])),
        Collection("c", "x", reduction_config=ReductionConfig(save_raw_tensor=True),
                   save_config=every(2)),
        Collection("losses", "loss", save_config=every(2)),
        save_config=every(1),
    )  # fmt: skip
    assert at(plan, 1).request("x") == SaveRequest(False, ("min", "max", "l2"), ("a", "b"))
    assert at(plan, 2).request("x") == SaveRequest(True, ("min", "max", "l2"), ("a", "b", "c"))
    assert at(plan, 2).request("loss x") == SaveRequest(
        True, ("min", "max", "l2"), ("a", "b", "c", "losses")
    )


def test_shape_alone_is_saved_and_an_empty_request_is_not() -> None:
    plan = plan_of(
        Collection("shapes", "s", reduction_config=ReductionConfig(save_shape=True)),
        Collection("nothing", "n", reduction_config=ReductionConfig()),
        save_config=every(1),
    )
    assert at(plan, 0).request("s") == SaveRequest(False, (), ("shapes",))
    assert at(plan, 0).request("n") is None


def test_the_same_kind_of_step_has_the_same_plan() -> None:
    plan = plan_of(Collection("a", "a", save_config=every(2)), Collection("b", "b"),
                   save_config=every(3))  # fmt: skip
    assert at(plan, 0) is at(plan, 6)
    assert at(plan, 2) is at(plan, 4)
    assert at(plan, 2) is not at(plan, 3)
    assert at(plan, 0, EVAL) is not at(plan, 0, TRAIN)
    assert at(plan, 0).request("a") is at(plan, 6).request("a")


def test_saved_names_are_recorded() -> None:
    plan = plan_of(Collection("a", "a"), Collection("b", "b"), save_config=every(1))
    plan.changed = False
    at(plan, 0).request("abc")
    assert plan.changed
    assert plan.seen == {"a": {"abc"}, "b": {"abc"}}
    plan.changed = False
    at(plan, 1).request("abc")
    at(plan, 1).request("xyz")
    assert not plan.changed


def test_saves_does_not_record_the_name() -> None:
    plan = plan_of(Collection("a", "a"), Collection("b", "b"), save_config=every(1))
    plan.changed = False
    step = at(plan, 0)
    assert step.saves("abc")
    assert step.saves("abc", ignored={"a"})
    assert not step.saves("abc", ignored={"a", "b"})
    assert not step.saves("xyz")
    assert (plan.seen, plan.changed) == ({}, False)


def test_new_plan_keeps_the_names_of_the_previous_one() -> None:
    collections = {"a": Collection("a", "a")}
    options = HookOptions(out_dir="run", save_config=every(1))
    before = SavePlan(collections, {"a"}, options)
    at(before, 0).request("abc")
    after = SavePlan(collections, {"a"}, options, before)
    assert after.seen == {"a": {"abc"}}


def test_the_collections_of_the_user_are_not_changed() -> None:
    mine = Collection("mine", "a")
    plan = plan_of(mine, save_config=every(1))
    at(plan, 0).request("abc")
    assert mine.tensor_names == set()
    assert mine.save_config is None
    mine.include("b")
    mine.add("c")
    assert at(plan, 0).request("c") is None


def test_due_collections_include_those_not_saved() -> None:
    plan = plan_of(
        Collection("a", "a", save_config=every(2)), Collection("b", "b"), included=[],
        save_config=every(3),
    )  # fmt: skip
    assert plan.collections_at(["a", "b"], TRAIN, 0) == ["a", "b"]
    assert plan.collections_at(["b", "a"], TRAIN, 2) == ["a"]
    assert plan.collections_at(["a", "b"], TRAIN, 1) == []
    assert plan.request_for([plan.collections["a"], plan.collections["b"]]) == SaveRequest(
        True, (), ("a", "b")
    )


# ---- when_nan


def test_when_nan_schedule_is_armed_at_steps_it_does_not_save() -> None:
    plan = plan_of(
        Collection("watched", "w", save_config=every(5, when_nan=["loss"])),
        Collection("plain", "p", save_config=every(5)),
    )
    assert at(plan, 0).armed == []
    armed = at(plan, 1)
    assert armed.saving == []
    assert [config.when_nan for config in armed.armed] == [("loss",)]
    assert armed.request("w") is None
    assert armed.may_save("w")
    assert not armed.may_save("p")
    assert armed.trigger("my loss") is armed.armed[0]
    assert armed.trigger("other") is None
    assert armed.is_relevant("w")
    assert armed.is_relevant("loss")
    assert not armed.is_relevant("p")


def test_triggered_plan_saves_collections_with_that_schedule() -> None:
    first, second = every(5, when_nan=["one"]), every(7, when_nan=["two"])
    plan = plan_of(
        Collection("a", "a", save_config=first), Collection("b", "b", save_config=second),
        Collection("c", "c", save_config=first), Collection("d", "d", save_config=every(2)),
    )  # fmt: skip
    armed = at(plan, 4)
    assert [each.name for each in armed.saving] == ["d"]
    assert len(armed.armed) == 2
    config = armed.trigger("one")
    assert config is not None
    after = plan.triggered(armed, config)
    assert sorted(each.name for each in after.saving) == ["a", "c", "d"]
    assert after is plan.triggered(armed, config)
    assert [each.when_nan for each in after.armed] == [("two",)]
    assert after.request("a") is not None
    assert after.request("b") is None
    assert after.may_save("b")


def test_gradients_are_not_saved_in_evaluation_for_a_nan_either() -> None:
    schedule = every(5, when_nan=["loss"])
    plan = plan_of(Collection("gradients", "g"), Collection("weights", "w"), save_config=schedule)
    armed = at(plan, 1, EVAL)
    config = armed.trigger("loss")
    assert config is not None
    assert plan.triggered(armed, config).request("g") is None
    assert plan.triggered(armed, config).request("w") is not None
