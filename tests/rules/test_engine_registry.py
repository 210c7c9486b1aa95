"""Finding rules: built-in ones, a user's file, other packages; and what is said when it fails."""

from __future__ import annotations

import importlib
import sys
import traceback
from typing import TYPE_CHECKING, Any

import pytest

from smdebug.config.options import rule_list
from smdebug.config.rule_requirements import TensorRequirement
from smdebug.exceptions import SMDebugError, SMDebugTypeError, SMDebugValueError
from smdebug.rules import Rule, make_rule, rule_class, rule_names, run_rules
from smdebug.rules.builtin.vanishing_gradient import VanishingGradient
from smdebug.rules.registry import BUILTIN_RULES, RuleSpec
from smdebug.testing.runs import make_run
from smdebug.trials import Trial, create_trial

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    make_run(tmp_path / "run")
    return create_trial(tmp_path / "run")


class Mine(Rule):
    def __init__(self, base_trial: Trial, limit: Any = 1, words: Any = "") -> None:
        super().__init__(base_trial)
        self.limit, self.words = limit, words

    def invoke_at_step(self, step: int) -> bool:
        return False


FILE = """
from smdebug.rules import Rule

NOT_A_RULE = 5

class FromFile(Rule):
    def __init__(self, base_trial, limit="1", words="", action_str=""):
        super().__init__(base_trial, action_str)
        self.limit, self.words = limit, words

    def invoke_at_step(self, step):
        return step >= int(self.limit)
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "my_rules.py"
    path.write_text(FILE)
    return path


# ---- built-in ones


@pytest.mark.parametrize("name", sorted(BUILTIN_RULES))
def test_every_built_in_rule_is_found_by_its_name(name: str) -> None:
    found = rule_class(name)
    assert (found.__name__, issubclass(found, Rule)) == (name, True)
    assert found.__module__ == f"smdebug.rules.builtin.{BUILTIN_RULES[name]}"
    assert found.__doc__
    assert "Args:" in found.__doc__
    assert name in rule_names()


def test_names_are_sorted_and_each_is_there_once() -> None:
    assert rule_names() == sorted(set(rule_names()))


@pytest.mark.parametrize(
    ("wrong", "near"),
    [
        ("VanishingGradients", "VanishingGradient"),
        ("vanishinggradient", "VanishingGradient"),
        ("vanishing_gradient", "VanishingGradient"),
        ("LossNotDecrasing", "LossNotDecreasing"),
        ("NLPSequenceRation", "NLPSequenceRatio"),
        ("StalledTraining", "StalledTrainingRule"),
        ("DEADRELU", "DeadRelu"),
    ],
)
def test_a_misspelt_name_is_answered_with_the_nearest(wrong: str, near: str) -> None:
    with pytest.raises(SMDebugValueError) as caught:
        rule_class(wrong)
    assert wrong in str(caught.value)
    assert f"did you mean {near}" in str(caught.value)


@pytest.mark.parametrize("wrong", ["", "   ", "Zqx", ":", "a b"])
def test_a_name_near_none_is_answered_with_all(wrong: str) -> None:
    with pytest.raises(SMDebugValueError, match="VanishingGradient"):
        RuleSpec(wrong)


# ---- spellings


@pytest.mark.parametrize(
    ("given", "parameters"),
    [
        ("VanishingGradient", {}),
        (" VanishingGradient ", {}),
        ("VanishingGradient:", {}),
        ("VanishingGradient:threshold=1e-6", {"threshold": "1e-6"}),
        ("VanishingGradient: threshold = 1e-6 ", {"threshold": "1e-6"}),
        ("VanishingGradient:threshold=1,action_str=", {"threshold": "1", "action_str": ""}),
        (VanishingGradient, {}),
        ({"rule": "VanishingGradient"}, {}),
        ({"name": "VanishingGradient", "threshold": 2}, {"threshold": 2}),
        ({"rule": VanishingGradient, "threshold": "3"}, {"threshold": "3"}),
        (("VanishingGradient", {"threshold": 4}), {"threshold": 4}),
        ((VanishingGradient, {}), {}),
    ],
)
def test_every_spelling_of_a_rule(given: Any, parameters: dict[str, Any], trial: Trial) -> None:
    spec = RuleSpec(given)
    assert (spec.kind, spec.parameters) == (VanishingGradient, parameters)
    rule = spec.make(trial)
    assert isinstance(rule, VanishingGradient)
    assert rule.threshold == float(parameters.get("threshold", 1e-7))
    assert rule.base_trial is trial
    assert isinstance(make_rule(given, trial), VanishingGradient)


@pytest.mark.parametrize(
    ("text", "parameters"),
    [
        ("collection_names=a,b", {"collection_names": "a,b"}),
        ("tensor_regex=a,b,c,min_threshold=1", {"tensor_regex": "a,b,c", "min_threshold": "1"}),
        ("tensor_regex=a , b, min_threshold=1", {"tensor_regex": "a , b", "min_threshold": "1"}),
        ("tensor_regex=a, min_threshold = 1", {"tensor_regex": "a", "min_threshold": "1"}),
        ("tensor_regex=x:0$,min_threshold=1", {"tensor_regex": "x:0$", "min_threshold": "1"}),
        ("tensor_regex=^(?!a=b).*$", {"tensor_regex": "^(?!a=b).*$"}),
        ("tensor_regex=\\d{1,2}", {"tensor_regex": "\\d{1,2}"}),
    ],
)
def test_values_may_hold_commas_colons_and_equals_signs(
    text: str, parameters: dict[str, str]
) -> None:
    assert RuleSpec(f"TensorVariance:{text}").parameters == parameters


@pytest.mark.parametrize("text", ["VanishingGradient:1e-6", "VanishingGradient:threshold,x=1"])
def test_parameters_without_a_name_are_refused(text: str) -> None:
    with pytest.raises(SMDebugValueError, match="parameter=value"):
        RuleSpec(text)


def test_a_rule_that_is_made_stays_as_it_is(trial: Trial) -> None:
    rule = VanishingGradient(trial)
    assert make_rule(rule, trial) is rule
    with pytest.raises(SMDebugTypeError, match="made already"):
        RuleSpec(rule)


@pytest.mark.parametrize(
    "wrong",
    [None, 5, 1.5, b"VanishingGradient", [], ["VanishingGradient"], (), ("VanishingGradient",),
     set(), ("VanishingGradient", 5), ("VanishingGradient", {}, {}), {}, {"threshold": 1},
     {"rule": 5},
     {"rule": None}, (5, {}), (None, {}), int, Trial, object, {"rule": dict}],
    ids=repr,
)  # fmt: skip
def test_what_is_no_rule_is_refused(wrong: Any) -> None:
    with pytest.raises(SMDebugError) as caught:
        RuleSpec(wrong)
    assert isinstance(caught.value, SMDebugTypeError | SMDebugValueError)
    assert "rule" in str(caught.value)


def test_lists_of_rules(trial: Trial) -> None:
    rule = VanishingGradient(trial)
    for one in ("A", VanishingGradient, {"rule": "A"}, rule):
        assert rule_list(one) == (one,)
    assert rule_list(["A", VanishingGradient]) == ("A", VanishingGradient)
    assert rule_list(("A", "B")) == ("A", "B")
    assert rule_list(("A", {"b": 1})) == (("A", {"b": 1}),)
    assert rule_list(each for each in "AB") == ("A", "B")
    assert rule_list("A, B:c=1,d,E:f=g , mine.py:H:x=1") == (
        "A",
        "B:c=1,d",
        "E:f=g",
        "mine.py:H:x=1",
    )
    assert rule_list([]) == ()


# ---- parameters


def test_unknown_parameters_are_refused_with_the_known_ones() -> None:
    for given in (
        "VanishingGradient:treshold=1",
        ("VanishingGradient", {"treshold": 1}),
        {"rule": "VanishingGradient", "base_trial": None},
        {"rule": "VanishingGradient", 5: 1},
        (Mine, {"base_trial": 1}),
    ):
        with pytest.raises(SMDebugValueError) as caught:
            RuleSpec(given)
        assert "has the parameters" in str(caught.value)
        assert ("threshold" in str(caught.value)) or ("limit" in str(caught.value))


@pytest.mark.parametrize("wrong", ["much", "", None, [], {}, True, "nan", float("inf"), -1, "-1"])
def test_parameters_that_make_no_sense_are_refused(wrong: Any, trial: Trial) -> None:
    spec = RuleSpec(("VanishingGradient", {"threshold": wrong}))
    for make in (lambda: spec.make(trial), spec.needs):
        with pytest.raises(SMDebugValueError, match="threshold must be a number"):
            make()


def test_a_rule_that_lacks_a_parameter_is_refused_by_its_name() -> None:
    class Needy(Rule):
        def __init__(self, base_trial: Trial, limit: float, words: str = "") -> None:
            super().__init__(base_trial)

        def invoke_at_step(self, step: int) -> bool:
            return False

    with pytest.raises(SMDebugValueError, match=r"Needy.*limit"):
        RuleSpec(Needy)
    assert RuleSpec((Needy, {"limit": 1})).parameters == {"limit": 1}


def test_a_rule_that_takes_anything_is_told_anything(trial: Trial) -> None:
    class Open(Mine):
        def __init__(self, base_trial: Trial, **options: Any) -> None:
            super().__init__(base_trial)
            self.options = options

    rule = make_rule((Open, {"x": 1}), trial)
    assert isinstance(rule, Open)
    assert rule.options == {"x": 1}


def test_an_abstract_rule_is_refused(trial: Trial) -> None:
    class Unfinished(Rule):
        pass

    for given in (Rule, Rule, Unfinished):
        with pytest.raises((SMDebugError, TypeError), match=r"invoke_at_step|judge|abstract"):
            make_rule(given, trial)


def test_needs_are_asked_of_whoever_says_them() -> None:
    class Saying(Mine):
        def needs(self) -> tuple[TensorRequirement, ...]:
            return (TensorRequirement("weights", reductions=("l2",)),)

    assert RuleSpec(Mine).needs() == ()
    assert RuleSpec(Saying).needs() == (TensorRequirement("weights", reductions=("l2",)),)
    assert [need.collection for need in RuleSpec("VanishingGradient").needs()] == ["gradients"]


# ---- a user's file


def test_a_rule_in_a_file(file: Path, trial: Trial) -> None:
    for text, limit, words in (
        (f"{file}:FromFile", "1", ""),
        (f"{file}:FromFile:limit=2", "2", ""),
        (f"{file}:FromFile:limit=2,words=a,b:c", "2", "a,b:c"),
    ):
        rule: Any = make_rule(text, trial)
        assert (rule.rule_name, rule.limit, rule.words) == ("FromFile", limit, words)
    assert rule_class(f"{file}:FromFile") is rule_class(f"{file}:FromFile")
    report = run_rules(trial, [f"{file}:FromFile:limit=2", {"rule": f"{file}:FromFile"}])
    assert [each.findings[0].step for each in report.outcomes] == [2, 1]


def test_a_file_by_a_relative_path_and_from_home(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(file.parent)
    monkeypatch.setenv("HOME", str(file.parent))
    found = rule_class(f"{file}:FromFile")
    assert rule_class("my_rules.py:FromFile") is found
    assert rule_class("./my_rules.py:FromFile") is found
    assert rule_class("~/my_rules.py:FromFile") is found


def test_files_of_one_name_do_not_meet(tmp_path: Path) -> None:
    for folder in ("one", "two", "with space, comma"):
        (tmp_path / folder).mkdir()
        text = FILE.replace('limit="1"', f'limit="{folder}"')
        (tmp_path / folder / "rules.py").write_text(text)
    kinds = [rule_class(f"{tmp_path}/{folder}/rules.py:FromFile") for folder in ("one", "two")]
    assert kinds[0] is not kinds[1]
    last = RuleSpec(f"{tmp_path}/with space, comma/rules.py:FromFile").kind
    assert len({*kinds, last}) == 3
    assert "rules" not in sys.modules


def test_a_file_hides_no_module(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text(FILE)
    rule_class(f"{tmp_path}/json.py:FromFile")
    assert hasattr(importlib.import_module("json"), "dumps")
    assert str(tmp_path) not in sys.path


def test_a_rule_in_a_file_can_be_pickled_with_its_module(file: Path) -> None:
    kind = rule_class(f"{file}:FromFile")
    assert getattr(sys.modules[kind.__module__], "FromFile", None) is kind


@pytest.mark.parametrize(
    ("name", "said"),
    [("Nothing", "Nothing"), ("NOT_A_RULE", "NOT_A_RULE"), ("", "my_rules"), ("Rule.x", "Rule.x")],
)
def test_a_file_without_the_rule(file: Path, name: str, said: str) -> None:
    with pytest.raises(SMDebugValueError, match="Rule") as caught:
        RuleSpec(f"{file}:{name}")
    assert said in str(caught.value)
    assert "my_rules.py" in str(caught.value)


def test_a_file_without_the_rule_says_which_it_has(file: Path) -> None:
    with pytest.raises(SMDebugValueError, match="FromFile"):
        RuleSpec(f"{file}:FromFlie")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    for path in ("nowhere.py", str(tmp_path / "none.py"), str(tmp_path)):
        with pytest.raises(SMDebugValueError):
            RuleSpec(f"{path}:X")
    with pytest.raises(SMDebugValueError, match=r"none\.py"):
        RuleSpec(f"{tmp_path}/none.py:X")
    with pytest.raises(SMDebugValueError, match=r"none\.py"):
        RuleSpec(f"{tmp_path}/none.py")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("def f(:\n", SyntaxError),
        ("import nothing_of_this_name\n", ModuleNotFoundError),
        ("x = 1\nraise ValueError('mine')\n", ValueError),
        ("raise SystemExit(3)\n", SystemExit),
    ],
)
def test_the_errors_of_a_file_are_the_users_own(
    tmp_path: Path, text: str, kind: type[BaseException]
) -> None:
    path = tmp_path / "broken_rules.py"
    path.write_text(text)
    before = set(sys.modules)
    for _ in range(2):
        with pytest.raises(kind) as caught:
            RuleSpec(f"{path}:X")
        shown = "".join(traceback.format_exception(caught.value))
        assert "broken_rules.py" in shown
    assert not {name for name in set(sys.modules) - before if "broken_rules" in name}
    # Once it is mended it is found.
    path.write_text(FILE)
    assert rule_class(f"{path}:FromFile").__name__ == "FromFile"


def test_a_file_that_was_changed_is_read_again(file: Path, trial: Trial) -> None:
    first: Any = make_rule(f"{file}:FromFile", trial)
    file.write_text(FILE.replace('limit="1"', 'limit="12345"'))
    second: Any = make_rule(f"{file}:FromFile", trial)
    assert (first.limit, second.limit) == ("1", "12345")


# ---- other packages


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package as pip installs one, which brings rules."""
    site = tmp_path / "site"
    info = site / "somebody_rules-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: somebody-rules\nVersion: 1.0\n")
    (info / "RECORD").write_text("")
    (info / "entry_points.txt").write_text(
        "[smdebug.rules]\n"
        "FromPackage = somebody_rules:FromFile\n"
        "NoRule = somebody_rules:NOT_A_RULE\n"
        "Gone = somebody_rules:Gone\n"
        "Missing = no_such_module_here:X\n"
        "VanishingGradient = somebody_rules:FromFile\n"
        "\n[other.group]\nElsewhere = somebody_rules:FromFile\n"
    )
    (site / "somebody_rules.py").write_text(FILE)
    monkeypatch.syspath_prepend(str(site))
    yield site
    sys.modules.pop("somebody_rules", None)


def test_a_package_brings_rules(package: Path, trial: Trial) -> None:
    assert "FromPackage" in rule_names()
    assert "Elsewhere" not in rule_names()
    rule: Any = make_rule("FromPackage:limit=2", trial)
    assert (rule.rule_name, rule.limit) == ("FromFile", "2")
    (outcome,) = run_rules(trial, ["FromPackage"]).outcomes
    assert outcome.findings[0].step == 1


def test_a_package_does_not_replace_a_built_in_rule(package: Path) -> None:
    assert rule_class("VanishingGradient") is VanishingGradient
    assert rule_names().count("VanishingGradient") == 1


def test_names_of_packages_are_offered_too(package: Path) -> None:
    with pytest.raises(SMDebugValueError, match="did you mean FromPackage"):
        rule_class("FromPackge")
    with pytest.raises(SMDebugValueError):
        rule_class("Elsewhere")


def test_a_package_that_is_broken_is_an_error_only_for_its_own_rule(package: Path) -> None:
    with pytest.raises(SMDebugValueError, match="NoRule"):
        rule_class("NoRule")
    with pytest.raises(AttributeError, match="Gone"):
        rule_class("Gone")
    with pytest.raises(ModuleNotFoundError, match="no_such_module_here"):
        rule_class("Missing")
    assert rule_class("FromPackage").__name__ == "FromFile"


def test_without_the_package_the_rule_is_unknown() -> None:
    assert "FromPackage" not in rule_names()
