"""Every exception the library raises. All of them are `SMDebugError`."""

from __future__ import annotations

from smdebug.mode_keys import ModeKeys


class SMDebugError(Exception):
    """Root of all exceptions of the library."""


class SMDebugCustomerError(SMDebugError):
    """A mistake in the script or the configuration, not in the library."""


class SMDebugTypeError(SMDebugError, TypeError):
    """An argument of the wrong type."""


class SMDebugRuntimeError(SMDebugError, RuntimeError):
    """An operation that the present state does not allow."""


class SMDebugValueError(SMDebugError, ValueError):
    """An argument of the right type with a value that makes no sense."""


class SMDebugNotImplementedError(SMDebugError, NotImplementedError):
    """A part of the old interface that has no meaning here."""


class SMDebugDeprecationWarning(DeprecationWarning):
    """A spelling that still works; the message names its replacement."""


class InvalidCollectionConfiguration(SMDebugValueError):
    """A collection that names no tensor: it has neither a regex nor tensor names.

    Args:
        c_name: its name.
        nearest: the name of a collection that may have been meant.
    """

    def __init__(self, c_name: str, nearest: str | None = None) -> None:
        self.c_name = c_name
        self.nearest = nearest
        super().__init__(c_name)

    def __str__(self) -> str:
        meant = "" if self.nearest is None else f" Did you mean {self.nearest}?"
        return (
            f"Collection {self.c_name} has neither include_regex nor tensor names, so it would "
            f"save nothing. Give it a regex with `include`, or add tensors to it.{meant}"
        )


class StepNotYetAvailable(SMDebugError):
    """The step may still come: the job has not reached it."""

    def __init__(self, step: int, mode: ModeKeys) -> None:
        self.step = step
        self.mode = mode
        super().__init__(step, mode)

    def __str__(self) -> str:
        return f"Step {self.step} of mode {self.mode.name} is not available yet"


class StepUnavailable(SMDebugError):
    """The step was not saved and never will be."""

    def __init__(self, step: int, mode: ModeKeys, nearest: tuple[int, ...] = ()) -> None:
        self.step = step
        self.mode = mode
        self.nearest = nearest
        super().__init__(step, mode, nearest)

    def __str__(self) -> str:
        near = f"; the nearest saved steps are {', '.join(map(str, self.nearest))}"
        return f"Step {self.step} of mode {self.mode.name} was not saved{near * bool(self.nearest)}"


class TensorUnavailableForStep(SMDebugError):
    """The step was saved, but not this tensor, or not its raw value."""

    def __init__(
        self, tname: str, step: int, mode: ModeKeys = ModeKeys.GLOBAL, has_reductions: bool = False
    ) -> None:
        self.tname = tname
        self.step = step
        self.mode = mode
        self.has_reductions = has_reductions
        super().__init__(tname, step, mode, has_reductions)

    def __str__(self) -> str:
        message = f"Tensor {self.tname} was not saved at step {self.step} of mode {self.mode.name}"
        if self.has_reductions:
            message += (
                ". Its reductions were saved: use Tensor.reduction_values to see them, "
                "or ReductionConfig(save_raw_tensor=True) to save the tensor as well"
            )
        return message


class ShapeUnavailableForStep(SMDebugError):
    """Neither the shape nor the value of the tensor was saved at this step."""

    def __init__(self, tname: str, step: int, mode: ModeKeys = ModeKeys.GLOBAL) -> None:
        self.tname = tname
        self.step = step
        self.mode = mode
        super().__init__(tname, step, mode)

    def __str__(self) -> str:
        return (
            f"The shape of tensor {self.tname} was not saved at step {self.step} "
            f"of mode {self.mode.name}"
        )


class TensorUnavailable(SMDebugError):
    """No step of the trial holds a tensor of this name."""

    def __init__(self, tname: str, nearest: tuple[str, ...] = ()) -> None:
        self.tname = tname
        self.nearest = nearest
        super().__init__(tname)

    def __str__(self) -> str:
        hint = f". Nearest names: {', '.join(self.nearest)}" if self.nearest else ""
        return f"Tensor {self.tname} is not in this trial{hint}"


class InvalidWorker(SMDebugError):
    """No worker of this name wrote the tensor."""

    def __init__(self, worker: str, workers: tuple[str, ...] = ()) -> None:
        self.worker = worker
        self.workers = workers
        super().__init__(worker)

    def __str__(self) -> str:
        hint = f"; the workers here are {', '.join(self.workers)}" if self.workers else ""
        return f"Invalid worker: {self.worker}{hint}"


class NoMoreData(SMDebugError):
    """The job has ended and the step lies behind its last one."""

    def __init__(self, step: int, mode: ModeKeys, last_step: int | None) -> None:
        self.step = step
        self.mode = mode
        self.last_step = last_step
        super().__init__(step, mode, last_step)

    def __str__(self) -> str:
        return (
            f"Looking for step {self.step} of mode {self.mode.name}: the job has ended, "
            f"its last step is {self.last_step}"
        )


class NoMoreProfilerData(SMDebugError):
    """Kept for scripts that catch it; nothing here raises it."""

    def __init__(self, timestamp: float) -> None:
        self.timestamp = timestamp
        super().__init__(timestamp)

    def __str__(self) -> str:
        return f"No profiler data after {self.timestamp}"


class MissingCollectionFiles(SMDebugError):
    """The job has ended, or the time to wait is over, and collections files are missing."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message or "The job has ended, but not all collections files are there")


class TrialNotFound(SMDebugError, FileNotFoundError):
    """The path of a trial does not exist, or holds something that is not a run."""


class IndexReaderException(SMDebugError):
    """An index file that cannot be understood or is damaged."""

    def __init__(self, message: str) -> None:
        self.message = message
        super().__init__(message)


class DataCorrupted(SMDebugError):
    """Stored bytes that do not pass their checksum, or cannot be what they claim to be.

    Attributes:
        key: the file, relative to the run.
        offset: where in the file the damaged piece starts.
        tensor: the tensor that was being read, when one was.
    """

    def __init__(
        self, message: str, *, key: str = "", offset: int | None = None, tensor: str | None = None
    ) -> None:
        self.message = message
        self.key = key
        self.offset = offset
        self.tensor = tensor
        super().__init__(message)

    def __str__(self) -> str:
        where = [f"file {self.key}"] if self.key else []
        if self.offset is not None:
            where.append(f"offset {self.offset}")
        if self.tensor is not None:
            where.append(f"tensor {self.tensor}")
        return f"{self.message} ({', '.join(where)})" if where else self.message


class StoreError(SMDebugError):
    """An object store that gives no answer, or says no.

    Attributes:
        code: what the store calls it, such as `NoSuchBucket`; None when it did not say.
        refused: it has answered, and will say the same again unless somebody changes something.
    """

    def __init__(self, message: str, *, code: str | None = None, refused: bool = False) -> None:
        self.code = code
        self.refused = refused
        super().__init__(message)


class WriteFailed(SMDebugError):
    """The background writer could not store data; the cause is chained.

    Attributes:
        lost_steps: the steps that were handed over and not published.
    """

    def __init__(self, message: str, lost_steps: tuple[int, ...] = ()) -> None:
        self.lost_steps = lost_steps
        super().__init__(message)


class RuleEvaluationConditionMet(SMDebugError):
    """A rule found what it looks for.

    Attributes:
        rule_name: the rule.
        step: the global step it is about.
        end_of_rule: the rule need not be invoked again.
        tensor: the tensor it is about, when it is about one.
        message: what was found, in words.
    """

    def __init__(
        self,
        rule_name: str,
        step: int,
        end_of_rule: bool = False,
        tensor: str | None = None,
        message: str = "",
    ) -> None:
        self.rule_name = rule_name
        self.step = step
        self.end_of_rule = end_of_rule
        self.tensor = tensor
        self.message = message
        super().__init__(rule_name, step, end_of_rule, tensor, message)

    def __str__(self) -> str:
        said = self.message or "its condition was met"
        return f"Rule {self.rule_name} fired at step {self.step}: {said}"


class InsufficientInformationForRuleInvocation(SMDebugError):
    """A rule cannot run because what it needs was not saved."""

    def __init__(self, rule_name: str, message: str) -> None:
        self.rule_name = rule_name
        self.message = message
        super().__init__(rule_name, message)

    def __str__(self) -> str:
        return f"Insufficient information to run rule {self.rule_name}: {self.message}"
