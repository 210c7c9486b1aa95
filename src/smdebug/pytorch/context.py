"""Where a callback is called from: training itself, or tracing and compilation."""

from __future__ import annotations

import torch


def in_backward() -> bool:
    """Return whether autograd runs in this thread: then a forward pass is a recomputation."""
    return bool(torch._C._current_graph_task_id() != -1)


def is_traced() -> bool:
    """Return whether the model is traced, exported or transformed: its tensors have no values.

    While torch.compile traces, this is a constant, so that callbacks add nothing to the graph.
    """
    return bool(
        is_transformed()
        or torch._C._get_tracing_state() is not None
        or torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None
    )


def is_transformed() -> bool:
    """Return whether a graph is compiled or torch.func runs; called for every gradient."""
    return bool(
        torch.compiler.is_compiling() or torch._C._functorch.peek_interpreter_stack() is not None
    )
