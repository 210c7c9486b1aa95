"""Patched functions behave like the originals, and removing a patch restores the original."""

from __future__ import annotations

import copy
import pickle
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from smdebug.hook.patch import patch

if TYPE_CHECKING:
    from collections.abc import Callable


class Model:
    def fit(self, value: int) -> int:
        """Fits."""
        return value


class Inherits(Model):
    pass


def doubled(function: Callable[..., int]) -> Callable[..., int]:
    def double(*args: Any, **kwargs: Any) -> int:
        return 2 * function(*args, **kwargs)

    return double


@pytest.fixture
def original() -> Callable[..., int]:
    return Model.fit


def test_removing_restores_the_same_object(original: Callable[..., int]) -> None:
    handle = patch(Model, "fit", doubled)
    assert Model().fit(3) == 6
    handle.remove()
    handle.remove()
    assert Model.fit is original


def test_an_inherited_function_is_not_left_on_the_class(original: Callable[..., int]) -> None:
    with patch(Inherits, "fit", doubled):
        assert (Inherits().fit(3), Model().fit(3)) == (6, 3)
    assert "fit" not in vars(Inherits)
    assert Inherits.fit is original


def test_a_function_of_one_object() -> None:
    model = Model()
    with patch(model, "fit", doubled):
        assert (model.fit(3), Model().fit(3)) == (6, 3)
    assert not vars(model)


def test_patches_are_removed_in_reverse_order(original: Callable[..., int]) -> None:
    first, second = patch(Model, "fit", doubled), patch(Model, "fit", doubled)
    assert Model().fit(3) == 12
    second.remove()
    first.remove()
    assert Model.fit is original


def test_a_patch_of_another_library_on_top_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    handle = patch(Model, "fit", doubled)
    ours = Model.fit
    try:
        theirs = doubled(ours)
        monkeypatch.setattr(Model, "fit", theirs)
        handle.remove()
        assert Model.fit is theirs
        assert Model().fit(3) == 12
    finally:
        monkeypatch.undo()
        assert Model.fit is ours
        Model.fit = ours.__wrapped__  # type: ignore[method-assign, attr-defined]


def test_a_patched_function_can_be_pickled_copied_and_compared() -> None:
    with patch(Model, "fit", doubled), patch(shutil, "copytree", doubled):
        for function in (Model.fit, shutil.copytree):
            assert pickle.loads(pickle.dumps(function)) is function
            assert copy.deepcopy([function]) == [function]
        assert pickle.loads(pickle.dumps(Model().fit))(3) == 6
        assert (Model.fit.__doc__, Model.fit.__qualname__) == ("Fits.", "Model.fit")
