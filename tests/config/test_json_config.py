"""The JSON config."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import pytest

from smdebug.config.collection import Collection
from smdebug.config.json_config import (
    JsonConfig,
    parse_json_config,
    read_checkpoint_dir,
    read_json_config,
    read_json_object,
    read_tensorboard_dir,
)
from smdebug.config.reduction_config import ReductionConfig
from smdebug.config.save_config import SaveConfig, SaveConfigMode
from smdebug.exceptions import SMDebugValueError
from smdebug.mode_keys import ModeKeys

if TYPE_CHECKING:
    from pathlib import Path


def hook(**params: Any) -> JsonConfig:
    return parse_json_config({"HookParameters": params})


def collection(**params: Any) -> Collection:
    entry = {"CollectionName": "c", "CollectionParameters": params}
    return parse_json_config({"CollectionConfigurations": [entry]}).collections[0]


SAMPLE = """{
  "S3OutputPath": "s3://bucket/prefix", "RuleConfigurations": [],
  "LocalPath": "run",
  "HookParameters": {
    "save_interval": "100", "train.save_interval": 10, "eval.start_step": "5",
    "include_regex": "relu, tanh", "save_all": "True", "include_workers": "all",
    "reductions": "min, l2_norm", "save_raw_tensor": "true",
    "export_tensorboard": 1, "tensorboard_dir": "tb", "dry_run": true, "format": "v1",
  },
  "CollectionConfigurations": [
    {"CollectionName": "weights"},
    {"CollectionName": "bias", "CollectionParameters": null},
    {"CollectionName": "custom", "CollectionParameters": {
      "include_regex": ["a,b", "c"], "save_steps": "1, 2", "eval.save_interval": 3,
      "reductions": "median", "save_histogram": "false",
    }},
  ],
}"""


def test_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "job.json"
    path.write_text(SAMPLE)
    monkeypatch.setenv("SMDEBUG_CONFIG_FILE_PATH", str(path))
    job = read_json_config()
    assert job == read_json_config(path)
    assert job.path == str(path)

    options = job.options
    assert (options.out_dir, options.tensorboard_dir) == ("run", "tb")
    assert options.save_all
    assert options.export_tensorboard
    assert options.dry_run
    assert (options.format, options.include_workers) == ("v1", "all")
    assert options.include_regex == ("relu", "tanh")
    assert options.include_collections == ("weights", "biases", "custom")
    assert options.reduction_config == ReductionConfig(["min"], norms=["l2"], save_raw_tensor=True)
    hundred = SaveConfigMode(100)
    assert options.save_config == SaveConfig(
        {
            ModeKeys.TRAIN: SaveConfigMode(10),
            ModeKeys.EVAL: SaveConfigMode(100, 5),
            ModeKeys.PREDICT: hundred,
            ModeKeys.GLOBAL: hundred,
        }
    )
    weights, biases, custom = job.collections
    assert weights == Collection("weights")
    assert biases == Collection("biases")
    assert custom.include_regex == ["a,b", "c"]
    assert custom.reduction_config == ReductionConfig(["median"])
    assert not custom.save_histogram
    assert custom.save_config == SaveConfig(
        {
            ModeKeys.TRAIN: SaveConfigMode(10, save_steps=[1, 2]),
            ModeKeys.EVAL: SaveConfigMode(3, 5, save_steps=[1, 2]),
            ModeKeys.PREDICT: SaveConfigMode(100, save_steps=[1, 2]),
            ModeKeys.GLOBAL: SaveConfigMode(100, save_steps=[1, 2]),
        }
    )


@pytest.mark.parametrize(
    "data",
    [{}, {"LocalPath": None, "HookParameters": None, "CollectionConfigurations": None}],
)
def test_nothing_given(data: dict[str, Any]) -> None:
    job = parse_json_config(data)
    assert job.options.out_dir == "/opt/ml/output/tensors"
    assert job.options.save_config == SaveConfig()
    assert job.options.reduction_config == ReductionConfig(save_raw_tensor=True)
    assert job.collections == ()


def test_null_parameters_are_defaults() -> None:
    keys = ["save_interval", "save_steps", "reductions", "save_all", "include_regex", "format"]
    assert hook(**dict.fromkeys(keys)) == hook()


def test_null_in_a_collection_resets_the_hooks_value() -> None:
    entry = {"CollectionName": "c", "CollectionParameters": {"end_step": None}}
    job = parse_json_config(
        {"HookParameters": {"end_step": 5}, "CollectionConfigurations": [entry]}
    )
    assert job.collections[0].save_config == SaveConfig()


@pytest.mark.parametrize(
    ("levels", "interval"),
    [
        (({}, {"start_step": 1}), 10),
        (({"save_interval": 2}, {"start_step": 1}), 2),
        (({"save_interval": 2, "train.save_interval": 3}, {"start_step": 1}), 3),
        (({"train.save_interval": 3}, {"save_interval": 4}), 4),
        (({"train.save_interval": 3}, {"save_interval": 4, "train.save_interval": 5}), 5),
        (({"train.save_interval": 3}, {"eval.save_interval": 5}), 3),
    ],
)
def test_field_merge(levels: tuple[dict[str, Any], dict[str, Any]], interval: int) -> None:
    entry = {"CollectionName": "c", "CollectionParameters": levels[1]}
    data = {"HookParameters": levels[0], "CollectionConfigurations": [entry]}
    config = parse_json_config(data, default_save_interval=10).collections[0].save_config
    assert config is not None
    assert config.get_save_config(ModeKeys.TRAIN).save_interval == interval


def test_the_default_interval_holds_at_both_levels() -> None:
    data = {"CollectionConfigurations": [{"CollectionName": "metrics"}]}
    job = parse_json_config(data, default_save_interval=10)
    assert job.options.save_config == SaveConfig(save_interval=10)
    assert job.collections[0].save_config is None  # filled from the hook's


def test_end_step_0_disables_a_collection() -> None:
    entry = {"CollectionName": "losses", "CollectionParameters": {"end_step": 0}}
    job = parse_json_config(
        {"HookParameters": {"start_step": 50}, "CollectionConfigurations": [entry]}
    )
    config = job.collections[0].save_config
    assert config is not None
    assert not any(config.should_save_step(ModeKeys.TRAIN, step) for step in range(2000))


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"save_steps": "1,2"}, SaveConfig(save_steps=[1, 2])),
        ({"save_steps": [1, "2"]}, SaveConfig(save_steps=[1, 2])),
        ({"skip_num_steps": 7}, SaveConfig(start_step=7)),
        ({"when_nan": "loss, ^grad"}, SaveConfig(when_nan=["loss", "^grad"])),
        ({"when_nan": ["a,b"]}, SaveConfig(when_nan=["a,b"])),
    ],
)
def test_schedule_spellings(params: dict[str, Any], expected: SaveConfig) -> None:
    assert hook(**params).options.save_config == expected
    assert collection(**params).save_config == expected


def test_config_without_save_schedule_leaves_it_to_rules() -> None:
    job = parse_json_config({"HookParameters": {"rules": "NonFinite"}}, default_save_interval=10)
    assert not job.options.scheduled
    assert job.options.save_config == SaveConfig(save_interval=10)
    assert hook(rules="NonFinite", save_interval=500).options.scheduled
    assert hook(rules="NonFinite", **{"eval.save_interval": 7}).options.scheduled


def test_empty_reductions_save_nothing() -> None:
    assert hook(reductions="").options.reduction_config == ReductionConfig()


def test_flags_without_reductions_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "smdebug.config"):
        assert collection(save_shape=True).reduction_config is None
    assert "collection 'c'" in caplog.text
    assert "save_shape" in caplog.text


def test_our_own_options() -> None:
    params = {"queue_bytes": 5, "flush_seconds": "0.5", "on_error": "raise", "worker": "w"}
    options = hook(**params, include_collections="weights,bias").options
    assert (options.queue_bytes, options.flush_seconds) == (5, 0.5)
    assert (options.on_error, options.worker) == ("raise", "w")
    assert options.include_collections == ("weights", "biases")
    assert collection(exclude_regex="a,b").exclude_regex == ["a", "b"]


def one(entry: object) -> dict[str, Any]:
    return {"CollectionConfigurations": [entry]}


def of_c(**params: Any) -> dict[str, Any]:
    return one({"CollectionName": "c", "CollectionParameters": params})


def of_hook(**params: Any) -> dict[str, Any]:
    return {"HookParameters": params}


BAD: list[tuple[dict[str, Any], list[str]]] = [
    ({"LocalPath": 5}, ["LocalPath", "string", "5"]),
    ({"LocalPath": ""}, ["LocalPath", "non-empty", "''"]),
    ({"HookParameters": []}, ["HookParameters", "object", "[]"]),
    ({"HookParameter": {}}, ["Did you mean 'HookParameters'", "'HookParameter'"]),
    ({"CollectionConfigurations": {}}, ["CollectionConfigurations", "list", "{}"]),
    (one("weights"), ["CollectionConfigurations[0]", "object", "'weights'"]),
    (one({}), ["CollectionConfigurations[0]", "CollectionName", "non-empty", "None"]),
    (one({"CollectionName": ""}), ["CollectionName", "non-empty", "''"]),
    (one({"CollectionName": 5}), ["CollectionName", "string", "5"]),
    (
        one({"CollectionName": "c", "CollectionParameter": {}}),
        ["Did you mean 'CollectionParameters'", "'CollectionParameter'"],
    ),
    (
        one({"CollectionName": "c", "CollectionParameters": "x"}),
        ["collection 'c'", "CollectionParameters", "object", "'x'"],
    ),
    (of_hook(save_interval=0), ["HookParameters", "save_interval", "positive integer", "0"]),
    (of_hook(save_interval="x"), ["HookParameters", "save_interval", "positive", "'x'"]),
    (of_hook(**{"train.save_interval": -1}), ["train.save_interval", "positive integer", "-1"]),
    (of_hook(start_step=True), ["HookParameters", "start_step", "at least 0", "True"]),
    (of_hook(start_step=9, end_step=3), ["mode train", "end_step", "start_step", "9", "3"]),
    (of_hook(start_step=9, skip_num_steps=3), ["skip_num_steps", "another name", "3"]),
    (of_hook(save_steps=""), ["save_steps", "integer", "''"]),
    (of_hook(save_steps="1,a"), ["save_steps", "integer", "'a'"]),
    (of_hook(save_steps=5), ["save_steps", "commas or a list", "5"]),
    (of_hook(save_steps=[1, -2]), ["save_steps", "integer", "-2"]),
    (of_hook(when_nan="("), ["when_nan", "valid regular expression", "'('"]),
    (of_hook(include_regex="("), ["include_regex", "valid regular expression", "'('"]),
    (of_hook(include_regex=5), ["include_regex", "commas or a list", "5"]),
    (of_hook(include_regex=[5]), ["include_regex", "list of strings", "[5]"]),
    (of_hook(save_all="maybe"), ["save_all", "true or false", "'maybe'"]),
    (of_hook(dry_run="2"), ["dry_run", "true or false", "'2'"]),
    (of_hook(include_workers="some"), ["include_workers", "one, all", "'some'"]),
    (of_hook(reductions="mode"), ["reductions", "median", "'mode'"]),
    (of_hook(reductions=5), ["reductions", "commas or a list", "5"]),
    (of_hook(reductions="min", save_shape="x"), ["save_shape", "true or false", "'x'"]),
    (of_hook(format="v9"), ["format", "v1, v2", "'v9'"]),
    (of_hook(queue_bytes=0), ["queue_bytes", "positive integer", "0"]),
    (of_hook(flush_seconds=-1), ["flush_seconds", "seconds", "-1"]),
    (of_hook(on_error="panic"), ["on_error", "warn, raise", "'panic'"]),
    (of_hook(tensorboard_dir=""), ["tensorboard_dir", "non-empty", "''"]),
    (of_hook(save_intervall=5), ["key", "Did you mean 'save_interval'", "'save_intervall'"]),
    (of_hook(SAVE_INTERVAL=5), ["key", "Did you mean 'save_interval'", "'SAVE_INTERVAL'"]),
    (of_hook(**{"trian.save_interval": 5}), ["Did you mean 'train.save", "'trian.save_interval'"]),
    (of_hook(reduction="min"), ["key", "Did you mean 'reductions'", "'reduction'"]),
    (of_c(save_interval=0), ["collection 'c'", "CollectionParameters", "save_interval", "0"]),
    (of_c(include_regex="["), ["collection 'c'", "include_regex", "valid regular", "'['"]),
    (of_c(exclude_regex="*"), ["collection 'c'", "exclude_regex", "valid regular", "'*'"]),
    (of_c(save_histogram="x"), ["collection 'c'", "save_histogram", "true or false", "'x'"]),
    (of_c(reductions="l3"), ["collection 'c'", "reductions", "min", "'l3'"]),
    (of_c(include_regx="a"), ["collection 'c'", "Did you mean 'include_regex'", "'include_regx'"]),
    (
        {**of_hook(start_step=100), **of_c(end_step=50)},
        ["collection 'c'", "mode train", "end_step", "start_step", "50", "100"],
    ),
]


@pytest.mark.parametrize(("data", "fragments"), BAD)
def test_bad(tmp_path: Path, data: dict[str, Any], fragments: list[str]) -> None:
    path = tmp_path / "job.json"
    path.write_text(json.dumps(data))
    with pytest.raises(SMDebugValueError) as caught:
        read_json_config(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert all(fragment in message for fragment in fragments), message


def test_unknown_key_is_ignored_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "smdebug.config"):
        parse_json_config({"HookParameters": {"colour": 1, "flavour": 2}, "S3Path": "s3://x"}, "f")
    assert [record.getMessage() for record in caplog.records] == [
        "f: HookParameters: ignoring unknown keys: colour, flavour"
    ]


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_json_config(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("read", "variable"),
    [
        (read_tensorboard_dir, "TENSORBOARD_CONFIG_FILE_PATH"),
        (read_checkpoint_dir, "CHECKPOINT_CONFIG_FILE_PATH"),
    ],
)
def test_directory_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Any, variable: str
) -> None:
    path = tmp_path / "config.json"
    monkeypatch.setenv(variable, str(path))
    assert read() is None
    path.write_text('{"LocalPath": "there", "S3OutputPath": "s3://x",}')
    assert read() == read(path) == "there"
    path.write_text("{}")
    assert read() is None
    path.write_text('{"LocalPath": 5}')
    with pytest.raises(SMDebugValueError, match=r"LocalPath must be a non-empty string, got 5"):
        read()


@pytest.mark.parametrize(
    ("content", "fragments"),
    [
        (b'{"a": 1', ["JSON", "line 1"]),
        (b'{\n "a": [1,],\n "b" 2}', ["JSON", "line 3"]),
        (b"[]", ["a JSON object", "list"]),
        (b"", ["JSON"]),
        (b"\xff\xfe", ["JSON", "utf-8"]),
    ],
)
def test_bad_text(tmp_path: Path, content: bytes, fragments: list[str]) -> None:
    path = tmp_path / "job.json"
    path.write_bytes(content)
    with pytest.raises(SMDebugValueError) as caught:
        read_json_object(path)
    assert all(fragment in str(caught.value) for fragment in [str(path), *fragments])


def test_byte_order_mark_and_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}')
    assert read_json_object(path) == {"a": 1}
    with pytest.raises(FileNotFoundError):
        read_json_object(tmp_path / "none.json")


def test_a_file_that_is_nested_too_deeply(tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    path.write_text("[" * 100_000)
    with pytest.raises(SMDebugValueError, match="must be JSON"):
        read_json_config(path)
