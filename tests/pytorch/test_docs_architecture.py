"""ARCHITECTURE.md lists the functions that one gradient goes through; a real one does."""

from __future__ import annotations

import re
import sys
import threading
from typing import TYPE_CHECKING, Any

import torch
from tests.pages import ROOT, text_of

import smdebug.pytorch as smd

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = f"{ROOT / 'src' / 'smdebug'}/"


def test_functions_that_handle_one_gradient(tmp_path: Path) -> None:
    listed = re.findall(r"^\d+\. `([^`]+)`", text_of("ARCHITECTURE.md"), re.MULTILINE)
    calls: list[tuple[bool, str]] = []
    main = threading.current_thread()
    recording = False

    def record(frame: Any, event: str, argument: object) -> None:
        code = frame.f_code
        if event == "call" and recording and code.co_filename.startswith(SOURCE):
            name = code.co_qualname.replace(".<locals>", "")
            on_main = threading.current_thread() is main
            calls.append((on_main, f"{code.co_filename.removeprefix(SOURCE)}:{name}"))

    model = torch.nn.Linear(20, 10)
    # The writer thread starts at the first step, and inherits the profile function.
    threading.setprofile(record)
    try:
        hook = smd.Hook(
            str(tmp_path), include_collections=["gradients"], flush_seconds=0,
            save_config=smd.SaveConfig(save_interval=1),
        )  # fmt: skip
        hook.register_module(model)
        model(torch.ones(3, 20)).sum().backward()
        hook.flush()
        loss = model(torch.ones(3, 20)).sum()
        sys.setprofile(record)
        recording = True
        loss.backward()
        model(torch.ones(3, 20))
        hook.flush()
    finally:
        recording = False
        sys.setprofile(None)
        threading.setprofile(None)
    hook.close()

    training = listed[: listed.index("storage/writer/thread.py:WriterThread._handle")]
    for names, on_main in ((training, True), (listed[len(training) :], False)):
        made = iter([name for thread, name in calls if thread is on_main])
        for name in names:
            assert name in made, f"{name} was not called, or in another order"
