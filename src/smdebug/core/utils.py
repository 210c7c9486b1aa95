"""The import path `smdebug.core.utils` of smdebug 1.0: small things that scripts use."""

from __future__ import annotations

import re
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from smdebug.config import validation
from smdebug.exceptions import SMDebugValueError
from smdebug.storage.format.keys import (
    COLLECTIONS_FOLDER,
    parse_collections_worker,
    worker_from_text,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from smdebug.reductions import Array

__all__ = [
    "FRAMEWORK",
    "deserialize_tf_device",
    "ensure_dir",
    "flatten",
    "get_path_to_collections",
    "get_worker_name_from_collection_file",
    "is_s3",
    "make_numpy_array",
    "match_inc",
    "parse_worker_name_from_file",
    "serialize_tf_device",
    "split",
]

_S3_PATH = re.compile(r"^s3://([^/]+)(?:/(.*))?$")
_FILE_OF_A_WORKER = re.compile(r"^\d+(?:-\d+)?_(.+)\.\w+$")


class FRAMEWORK(Enum):
    """The frameworks that there is a hook for."""

    PYTORCH = "pytorch"
    TENSORFLOW = "tensorflow"
    MXNET = "mxnet"
    XGBOOST = "xgboost"


def is_s3(path: str) -> tuple[bool, str | None, str | None]:
    """Return whether a path is in S3, and names its bucket and its key.

    Example:
        >>> is_s3("s3://bucket/runs/one"), is_s3("/tmp/run")
        ((True, 'bucket', 'runs/one'), (False, None, None))
    """
    match = _S3_PATH.match(str(path))
    return (True, match[1], match[2] or "") if match else (False, None, None)


def ensure_dir(file_path: str, is_file: bool = True) -> None:
    """Make the directory of a file; with `is_file=False`, that directory itself."""
    path = Path(file_path)
    (path.parent if is_file else path).mkdir(parents=True, exist_ok=True)


def match_inc(tname: str, include: Iterable[str]) -> bool:
    """Return whether one of the regexes is found in a name.

    Example:
        >>> match_inc("relu_output_0", ["conv", "relu"])
        True
    """
    return any(re.search(regex, tname) for regex in include)


def flatten(lis: Iterable[Any]) -> list[Any]:
    """Return the items of lists in lists.

    Example:
        >>> flatten([1, [2, [3]]])
        [1, 2, 3]
    """
    found: list[Any] = []
    for item in lis:
        found += flatten(item) if isinstance(item, list) else [item]
    return found


def split(comma_separated_string: str) -> list[str]:
    """Return the items between commas, without spaces around them.

    Example:
        >>> split("min, max")
        ['min', 'max']
    """
    return [item.strip() for item in comma_separated_string.split(",")]


def get_path_to_collections(directory: str) -> str:
    """Return the directory of the collections files of a run.

    Example:
        >>> get_path_to_collections("/tmp/run")
        '/tmp/run/collections/000000000/'
    """
    return f"{directory.rstrip('/')}/{COLLECTIONS_FOLDER}/"


def make_numpy_array(x: Any) -> Array:
    """Turn numbers, lists and arrays into an array; one number into an array of one.

    Example:
        >>> make_numpy_array(2.5)
        array([2.5])
    """
    array = np.asarray(x)
    if array.dtype.kind == "O":
        raise SMDebugValueError(
            f"expected numbers, lists of them or text, got {validation.short_repr(x)}"
        )
    return array.reshape(1) if np.isscalar(x) else array


def parse_worker_name_from_file(filename: str) -> str:
    """Return the worker that wrote an event file or an index file.

    Example:
        >>> parse_worker_name_from_file("events/000000000010/000000000010_worker_0.tfevents")
        'worker_0'
    """
    match = _FILE_OF_A_WORKER.match(Path(filename).name)
    if match is None:
        raise SMDebugValueError(
            "filename must be like 000000000010_worker_0.tfevents, a file of a run, got "
            f"{validation.short_repr(filename)}"
        )
    return deserialize_tf_device(match[1])


def get_worker_name_from_collection_file(filename: str) -> str:
    """Return the worker that wrote a collections file.

    Example:
        >>> get_worker_name_from_collection_file("collections/000000000/worker_0_collections.json")
        'worker_0'
    """
    worker = parse_collections_worker(f"{COLLECTIONS_FOLDER}/{Path(filename).name}")
    if worker is None:
        raise SMDebugValueError(
            "filename must be like worker_0_collections.json, "
            f"got {validation.short_repr(filename)}"
        )
    return worker


def serialize_tf_device(device: str) -> str:
    """Return the name of a device of TensorFlow as it stands in the names of files.

    Example:
        >>> serialize_tf_device("/job:worker/replica:0/task:1/device:GPU:0")
        '_job-worker_replica-0_task-1_device-GPU-0'
    """
    return device.replace("/", "_").replace(":", "-")


def deserialize_tf_device(device_name: str) -> str:
    """Do the opposite of `serialize_tf_device`; a name that is no device stays as it is."""
    return worker_from_text(device_name)
