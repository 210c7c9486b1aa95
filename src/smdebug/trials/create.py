"""Opening a trial by its path."""

from __future__ import annotations

from typing import Any

from smdebug.exceptions import SMDebugNotImplementedError, SMDebugTypeError
from smdebug.trials.trial import Trial

# Switches of smdebug 1.0 that chose between ways of reading; there is one way now.
_WITHOUT_EFFECT = ("index_mode", "parallel")
_OPTIONS = ("range_steps", "check", "cache", "wait_seconds")


def create_trial(
    path: Any = None,
    name: str | None = None,
    profiler: bool = False,
    output_dir: str = "/opt/ml/processing/outputs/",
    *,
    out_dir: Any = None,
    **options: Any,
) -> Trial:
    """Opens the run that a hook writes or has written.

    Args:
        path: the hook's `out_dir`: a directory, `s3://bucket/prefix`, `gs://...` or `az://...`.
        name: how the trial calls itself; the last part of the path when None.
        profiler: there are no profiler trials here; True is an error.
        output_dir: kept for old scripts; without effect.
        out_dir: another spelling of `path`.
        **options: `range_steps`, `check`, `cache`, `wait_seconds`, see `Trial`; `index_mode` and
            `parallel` are accepted and have no effect.

    Raises:
        TrialNotFound: the path does not exist or holds something else.
        MissingCollectionFiles: a job was waited for and did not begin.

    Example:
        >>> trial = create_trial("runs/one")  # doctest: +SKIP
        >>> trial.tensor_names(collection="losses")  # doctest: +SKIP
        ['CrossEntropyLoss_output_0']
    """
    if (path is None) == (out_dir is None):
        raise SMDebugTypeError(f"expected one of path and out_dir, got {path!r} and {out_dir!r}")
    if profiler:
        raise SMDebugNotImplementedError(
            "profiler trials are not part of this library; open the run without profiler=True"
        )
    return Trial(str(path if out_dir is None else out_dir), name, **_known(options))


class LocalTrial(Trial):
    """A trial in a local directory, with the arguments of smdebug 1.0."""

    def __init__(self, name: str, dirname: str, **options: Any) -> None:
        super().__init__(dirname, name, **_known(options))


class S3Trial(Trial):
    """A trial in a bucket, with the arguments of smdebug 1.0."""

    def __init__(self, name: str, bucket_name: str, prefix_name: str, **options: Any) -> None:
        super().__init__(f"s3://{bucket_name}/{prefix_name}", name, **_known(options))


def _known(options: dict[str, Any]) -> dict[str, Any]:
    unknown = sorted(set(options) - {*_OPTIONS, *_WITHOUT_EFFECT})
    if unknown:
        raise SMDebugTypeError(
            f"a trial has no option {', '.join(unknown)}; expected some of {', '.join(_OPTIONS)}"
        )
    return {key: value for key, value in options.items() if key in _OPTIONS}
