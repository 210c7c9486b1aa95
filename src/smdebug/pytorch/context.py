"""Where a callback is called from: training itself, or something that only looks at the model."""

from __future__ import annotations

import torch


def in_backward() -> bool:
    """Whether autograd is at work in this thread: then a forward is a recomputed one."""
    return bool(torch._C._current_graph_task_id() != -1)


def is_traced() -> bool:
    """Whether the model is traced, exported or transformed: its tensors have no values then.

    In a graph that torch.compile traces this is a constant, so that callbacks are nothing there.
    """
    return bool(
        is_transformed()
        or torch._C._get_tracing_state() is not None
        or torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None
    )


def is_transformed() -> bool:
    """Whether a graph is compiled or torch.func at work; asked for every gradient."""
    return bool(
        torch.compiler.is_compiling() or torch._C._functorch.peek_interpreter_stack() is not None
    )
