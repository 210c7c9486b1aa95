"""The fault-injection suite: every fault is found by its rule; healthy jobs have no finding."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import torch

from smdebug.exceptions import SMDebugValueError
from smdebug.mode_keys import ModeKeys
from smdebug.rules import Finding
from smdebug.testing.faults import FAULTS, HEALTHY, GymTable, run_fault, run_gym, run_healthy
from smdebug.testing.faults.gym import gym_rules
from smdebug.testing.faults.table import DETECTED, SILENT, FaultRow, HealthyRow

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from smdebug.testing.faults import Fault, Training


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Small tensors: more threads only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault_is_detected(fault: Fault, tmp_path: Path) -> None:
    row = run_fault(fault, tmp_path)
    assert row.verdict == DETECTED, GymTable(faults=[row])
    assert row.alarms == [], "found before anything was wrong"
    assert not [rule for rule, (status, _) in row.outcomes.items() if status == "failed"]


@pytest.mark.parametrize("training", HEALTHY, ids=lambda training: training.name)
def test_healthy_run_has_no_finding(training: Training, tmp_path: Path) -> None:
    row = run_healthy(training, tmp_path)
    assert row.has_learned, "this training is not healthy"
    assert row.verdict == SILENT, "\n".join(map(str, row.findings))


def test_training_is_reproducible(tmp_path: Path) -> None:
    before = torch.random.get_rng_state()
    first, second = (HEALTHY[3].train(tmp_path / name, ["NonFinite"]) for name in ("a", "b"))
    assert first.losses == second.losses
    assert torch.equal(torch.random.get_rng_state(), before)


def test_every_rule_of_a_pytorch_training_has_a_fault() -> None:
    rules = {rule if isinstance(rule, str) else rule["rule"] for rule in gym_rules()}
    assert {fault.rule_name for fault in FAULTS} == rules


def test_suite_has_enough_unique_jobs() -> None:
    assert len(HEALTHY) >= 12
    names = [each.name for each in FAULTS] + [each.name for each in HEALTHY]
    assert len(set(names)) == len(names)


# ---- the table


def row(*found: Finding, place: str = "dead relu") -> FaultRow:
    fault = next(fault for fault in FAULTS if fault.name == place)
    return FaultRow(fault, list(found), {})


def test_fault_is_detected_from_the_step_it_was_injected_at() -> None:
    fault = row().fault
    assert row().verdict == "missed"
    at = [fault.step - 1, fault.step, fault.step + fault.within, fault.step + fault.within + 1]
    verdicts = [row(Finding("DeadRelu", step, "", "act1_output_0")).verdict for step in at]
    assert verdicts[0] == "false alarm before it was planted"
    assert verdicts[1:3] == [DETECTED, DETECTED]
    assert verdicts[3].startswith("late")


def test_the_right_tensor_must_be_named() -> None:
    named = row(Finding("DeadRelu", row().fault.step, "", "act0_output_0"))
    assert named.verdict == "names act0_output_0, not ^act1_output_0$"


def test_rule_that_could_not_run_reports_the_reason() -> None:
    fault = row().fault
    without = FaultRow(fault, [], {"DeadRelu": ("could not run", "no ReLU was saved")})
    assert without.verdict == "could not run: no ReLU was saved"


def test_other_rules_are_shown_and_false_alarms_too() -> None:
    step = row().fault.step
    shown = row(
        Finding("DeadRelu", step, "", "act1_output_0"),
        Finding("NonFinite", step + 2, "", "loss"),
        Finding("NonFinite", step + 1, "", "loss"),
        Finding("LossSpike", step - 1, "", "loss"),
    )
    table = GymTable(faults=[shown])
    assert shown.others == {"NonFinite": step + 1}
    assert [each.rule for each in shown.alarms] == ["LossSpike"]
    assert not table.passed
    assert f"NonFinite {step + 1}" in str(table)
    assert f"LossSpike, step {step - 1}" in str(table)


def test_a_finding_in_a_healthy_run_is_a_false_alarm() -> None:
    outcomes = {"LossSpike": ("found", ""), "NonFinite": ("passed", "")}
    finding = Finding("LossSpike", 3, "", "loss", mode=ModeKeys.TRAIN)
    loud = HealthyRow(HEALTHY[0], [finding], outcomes, True)
    quiet = HealthyRow(HEALTHY[1], [], {"NonFinite": ("passed", "")}, True)
    assert loud.verdict == "false alarm: LossSpike"
    assert not GymTable(healthy=[loud]).passed
    assert GymTable(healthy=[quiet]).passed
    lines = str(GymTable(healthy=[loud, quiet])).splitlines()
    assert any(line.split()[:3] == ["NonFinite", "2", "2"] for line in lines)


def test_unknown_fault_name_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(SMDebugValueError, match="got \\['dead rely'\\]"):
        run_gym(tmp_path, only="dead rely")


def test_testing_does_not_load_torch() -> None:
    program = "import sys, smdebug.testing; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_program_prints_the_table() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "smdebug.testing.faults", "--only", "all-zero"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all-zero initialisation" in done.stdout
    assert DETECTED in done.stdout
