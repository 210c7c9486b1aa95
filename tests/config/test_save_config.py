"""When to save."""

from __future__ import annotations

import json
import logging
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smdebug.config.save_config import SaveConfig, SaveConfigMode
from smdebug.exceptions import SMDebugError, SMDebugTypeError, SMDebugValueError
from smdebug.mode_keys import ModeKeys


def saved(config: SaveConfigMode, stop: int) -> list[int]:
    return [step for step in range(stop) if config.should_save_step(step)]


@pytest.mark.parametrize(
    ("fields", "stop", "expected"),
    [
        ({}, 1001, [0, 500, 1000]),
        (
            {"save_interval": 5, "start_step": 3, "end_step": 12, "save_steps": [1, 13]},
            20,
            [1, 5, 10, 13],
        ),
        ({"save_steps": [3, 7]}, 1001, [0, 3, 7, 500, 1000]),
        ({"save_interval": 100, "end_step": 200}, 500, [0, 100]),
        ({"save_interval": "5"}, 11, [0, 5, 10]),
        ({"save_interval": 2.7}, 5, [0, 2, 4]),
        ({"end_step": 0}, 1001, []),
        ({"start_step": 100, "end_step": 0}, 1001, []),
        ({"end_step": 0, "save_steps": [4]}, 1001, [4]),
        ({"save_interval": 10, "start_step": 20, "end_step": 20}, 100, []),
        ({"save_interval": 10, "skip_num_steps": 25}, 50, [30, 40]),
    ],
)
def test_should_save_step(fields: dict[str, Any], stop: int, expected: list[int]) -> None:
    assert saved(SaveConfigMode(**fields), stop) == expected
    config = SaveConfig(**fields)
    for mode in ModeKeys:
        assert [s for s in range(stop) if config.should_save_step(mode, s)] == expected


BAD_FIELDS: list[tuple[str, object, str]] = [
    ("save_interval", 0, "a positive integer"),
    ("save_interval", -5, "a positive integer"),
    ("save_interval", True, "a positive integer"),
    ("save_interval", 0.5, "a positive integer"),
    ("save_interval", math.nan, "a positive integer"),
    ("save_interval", math.inf, "a positive integer"),
    ("save_interval", "abc", "a positive integer"),
    ("save_interval", "2.7", "a positive integer"),
    ("save_interval", "", "a positive integer"),
    ("save_interval", [5], "a positive integer"),
    ("save_interval", {"train": 5}, "a positive integer"),
    ("start_step", -1, "at least 0"),
    ("start_step", False, "at least 0"),
    ("start_step", "first", "at least 0"),
    ("start_step", math.nan, "at least 0"),
    ("skip_num_steps", -1, "at least 0"),
    ("end_step", -1, "at least 0"),
    ("end_step", True, "at least 0"),
    ("end_step", object, "at least 0"),
    ("save_steps", (1, 2), "a list of step numbers"),
    ("save_steps", "1,2", "a list of step numbers"),
    ("save_steps", ["1"], "a list of step numbers"),
    ("save_steps", [1.5], "a list of step numbers"),
    ("save_steps", [True], "a list of step numbers"),
    ("save_steps", [-1], "a list of step numbers"),
    ("save_steps", [None], "a list of step numbers"),
    ("save_steps", 5, "a list of step numbers"),
    ("when_nan", "(", "a valid regular expression"),
    ("when_nan", ["ok", "*"], "a valid regular expression"),
    ("when_nan", 5, "a string"),
    ("when_nan", [None], "strings"),
]


@pytest.mark.parametrize("make", [SaveConfigMode, SaveConfig])
@pytest.mark.parametrize(("key", "value", "expected"), BAD_FIELDS)
def test_bad_field(make: Any, key: str, value: object, expected: str) -> None:
    with pytest.raises(SMDebugValueError) as caught:
        make(**{key: value})
    message = str(caught.value)
    last = value[-1] if isinstance(value, list) and value else value
    assert key in message
    assert expected in message
    assert repr(value) in message or repr(last) in message


@pytest.mark.parametrize(
    ("fields", "fragments"),
    [
        ({"start_step": 10, "end_step": 5}, ["end_step", "at least start_step", "5", "10"]),
        ({"skip_num_steps": 10, "end_step": 9}, ["end_step", "at least skip_num_steps", "9", "10"]),
        ({"start_step": 1, "skip_num_steps": 2}, ["start_step", "skip_num_steps", "1", "2"]),
    ],
)
def test_fields_that_contradict(fields: dict[str, Any], fragments: list[str]) -> None:
    with pytest.raises(SMDebugValueError) as caught:
        SaveConfigMode(**fields)
    assert all(fragment in str(caught.value) for fragment in fragments)


BAD_CONFIGS: list[tuple[Any, type[SMDebugError], list[str]]] = [
    (lambda: SaveConfig(5), SMDebugValueError, ["mode_save_configs", "dict", "5"]),  # type: ignore[arg-type]
    (
        lambda: SaveConfig({"TRAIN": SaveConfigMode()}),  # type: ignore[dict-item]
        SMDebugValueError,
        ["mode", "modes.TRAIN", "'TRAIN'"],
    ),
    (
        lambda: SaveConfig({"EVAL": None}),  # type: ignore[dict-item]
        SMDebugValueError,
        ["mode", "modes.EVAL", "'EVAL'"],
    ),
    (
        lambda: SaveConfig({ModeKeys.TRAIN: 5}),  # type: ignore[dict-item]
        SMDebugValueError,
        ["save_config", "TRAIN", "SaveConfigMode", "5"],
    ),
    (lambda: SaveConfig.parse(5), SMDebugTypeError, ["save_config", "SaveConfigMode", "5"]),
    (lambda: SaveConfig.parse("train"), SMDebugTypeError, ["save_config", "dict", "'train'"]),
    (lambda: SaveConfig.parse([1]), SMDebugTypeError, ["save_config", "dict", "[1]"]),
    (
        lambda: SaveConfig.from_dict({"training": {}}),
        SMDebugValueError,
        ["save_config", "TRAIN", "'training'"],
    ),
    (
        lambda: SaveConfig.from_dict({"save_intervall": 5}),
        SMDebugValueError,
        ["Did you mean 'save_interval'", "'save_intervall'"],
    ),
    (
        lambda: SaveConfig.from_dict({"train": 5}),
        SMDebugValueError,
        ["save_config of mode TRAIN", "dict", "5"],
    ),
    (
        lambda: SaveConfig.from_dict({"train": {"save_step": [5]}}),
        SMDebugValueError,
        ["key", "Did you mean 'save_steps'", "'save_step'"],
    ),
    (
        lambda: SaveConfig.from_dict({"train": {"save_interval": 0}}),
        SMDebugValueError,
        ["save_interval", "a positive integer", "0"],
    ),
    (
        lambda: SaveConfig.from_dict({5: None}),
        SMDebugValueError,
        ["save_config", "GLOBAL", "5"],
    ),
    (
        lambda: SaveConfig().get_save_config("TRAIN"),  # type: ignore[arg-type]
        SMDebugValueError,
        ["mode", "modes.TRAIN", "'TRAIN'"],
    ),
    (
        lambda: SaveConfig().should_save_step(None, 5),  # type: ignore[arg-type]
        SMDebugValueError,
        ["mode", "modes.TRAIN", "None"],
    ),
    (
        lambda: SaveConfig().set_save_config(ModeKeys.EVAL, {}),  # type: ignore[arg-type]
        SMDebugValueError,
        ["EVAL", "SaveConfigMode", "{}"],
    ),
]


@pytest.mark.parametrize(("make", "error", "fragments"), BAD_CONFIGS)
def test_bad_config(make: Any, error: type[SMDebugError], fragments: list[str]) -> None:
    with pytest.raises(error) as caught:
        make()
    assert all(fragment in str(caught.value) for fragment in fragments), str(caught.value)


def test_parse_and_from_dict_accept_every_spelling() -> None:
    five = SaveConfigMode(save_interval=5)
    everywhere = SaveConfig(save_interval=5)
    assert SaveConfig.parse(None) == SaveConfig()
    assert SaveConfig.parse(everywhere) is everywhere
    assert SaveConfig.parse(five) == everywhere
    assert SaveConfig.parse({"save_interval": 5}) == everywhere
    assert SaveConfig.from_dict({}, default_values={"save_interval": 5}) == everywhere
    train = SaveConfig({ModeKeys.TRAIN: five})
    for key in (ModeKeys.TRAIN, "TRAIN", "train"):
        for value in (five, {"save_interval": 5}, {"save_interval": "5", "later_version": 1}):
            assert SaveConfig.parse({key: value}) == train
    defaults = {"save_interval": 7, "start_step": 3}
    merged = SaveConfig.from_dict({"train": {"skip_num_steps": 4}, "eval": None}, defaults)
    assert merged.mode_save_configs[ModeKeys.TRAIN] == SaveConfigMode(7, 4)
    assert merged.mode_save_configs[ModeKeys.EVAL] is None


def test_open_modes_use_the_built_in_defaults_until_merged() -> None:
    config = SaveConfig({ModeKeys.TRAIN: SaveConfigMode(save_interval=10)})
    assert config.get_save_config(ModeKeys.EVAL) == SaveConfigMode()
    assert config.should_save_step(ModeKeys.EVAL, 500)

    merged = config.merged_with(SaveConfig(save_interval=3))
    assert merged.should_save_step(ModeKeys.EVAL, 3)
    assert merged.should_save_step(ModeKeys.TRAIN, 10)
    assert config.mode_save_configs[ModeKeys.EVAL] is None

    config.merge_default_save_config(SaveConfig(save_interval=3))
    assert config == merged
    assert merged.merged_with(SaveConfig()) is merged


def test_set_save_config() -> None:
    config = SaveConfig(save_interval=10)
    config.set_save_config(ModeKeys.EVAL, SaveConfigMode(save_interval=2))
    assert config.should_save_step(ModeKeys.EVAL, 2)
    assert not config.should_save_step(ModeKeys.TRAIN, 2)


def test_when_nan() -> None:
    config = SaveConfig(when_nan=["^loss", ["grad"]])
    assert config.watches(ModeKeys.TRAIN, "loss_0")
    assert config.watches(ModeKeys.EVAL, "gradient/x")
    assert not config.watches(ModeKeys.TRAIN, "weight")
    assert config.to_json_dict()["TRAIN"]["when_nan"] == ["^loss", "grad"]


def test_json_has_only_the_keys_of_smdebug_1() -> None:
    entry = SaveConfig(save_interval=5, save_steps=[1]).to_json_dict()
    assert list(entry) == ["TRAIN", "EVAL", "PREDICT", "GLOBAL"]
    assert entry["TRAIN"] == {
        "save_interval": 5,
        "save_steps": [1],
        "start_step": 0,
        "end_step": None,
    }
    assert json.loads(SaveConfigMode(save_interval=5, save_steps=[1]).to_json()) == entry["TRAIN"]
    assert SaveConfig({ModeKeys.TRAIN: SaveConfigMode()}).to_json_dict()["EVAL"] is None


def test_save_configs_compare_by_value() -> None:
    steps = [1, 2]
    mode = SaveConfigMode(save_steps=steps)
    steps.append(3)
    mode.save_steps.append(4)
    assert mode.save_steps == [1, 2]
    assert hash(mode) == hash(SaveConfigMode(save_steps=[1, 2]))
    with pytest.raises(AttributeError):
        mode.save_interval = 5  # type: ignore[misc]
    assert eval(repr(mode)) == mode
    assert "TRAIN" in repr(SaveConfig())
    assert SaveConfig() != 5


def test_arguments_next_to_a_dict_of_modes_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "smdebug.config"):
        SaveConfig({ModeKeys.TRAIN: None}, save_interval=5)
    assert "ignoring the other arguments" in caplog.text


@st.composite
def save_config_modes(draw: st.DrawFn) -> SaveConfigMode:
    start = draw(st.integers(0, 10**9))
    return SaveConfigMode(
        save_interval=draw(st.integers(1, 10**9)),
        start_step=start,
        end_step=draw(st.none() | st.just(0) | st.integers(start, 10**12)),
        save_steps=draw(st.lists(st.integers(0, 10**12), max_size=4)),
        when_nan=draw(st.lists(st.sampled_from(["loss", "^gradient", "a,b"]), max_size=2)),
    )


@given(st.dictionaries(st.sampled_from(ModeKeys), st.none() | save_config_modes()))
def test_json_round_trip(configs: dict[ModeKeys, SaveConfigMode | None]) -> None:
    config = SaveConfig(configs)
    assert SaveConfig.from_json(config.to_json()) == config


def test_misspelled_field_gets_a_suggestion() -> None:
    with pytest.raises(SMDebugValueError, match=r"save_intervall.*save_interval"):
        SaveConfig.from_dict({"save_intervall": 4})


def test_invalid_json() -> None:
    with pytest.raises(SMDebugValueError, match="save_config must be JSON"):
        SaveConfig.from_json("{")
