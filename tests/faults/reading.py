"""Reads a run in every way there is; started as a process of its own by `hostile.read_in_child`.

    python -m tests.faults.reading '{"runs": [...], "told": ..., "ways": [...], "outside": [...]}'

A hook of the interpreter watches what is opened, removed, started, executed and connected to.
"""

from __future__ import annotations

import contextlib
import io
import json
import resource
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_CHANGING = ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.truncate", "os.link",
             "os.symlink", "shutil.rmtree", "os.chmod", "os.chown", "os.utime")  # fmt: skip
_NEVER = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork",
          "pickle.find_class", "socket.connect", "socket.bind")  # fmt: skip


class Watch:
    """What a process did outside its own directories."""

    def __init__(self, run: Path, out: Path, outside: list[str]) -> None:
        self.seen: list[str] = []
        self.active = False
        self._run = str(run)
        self._outside = outside
        self._own = [str(each) for each in (run, out, run.parent / "mpl")]
        self._readable = [
            *self._own, sys.prefix, sys.base_prefix, "/usr", "/lib", "/etc", "/proc", "/sys",
            "/opt/ml",
            "/dev/null", "/dev/urandom", *sys.path[1:], str(Path(__file__).parent.parent.parent),
        ]  # fmt: skip

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.active:
            return
        try:
            if event == "open":
                self._opened(*arguments)
            elif event in _CHANGING:
                self._changed(event, arguments)
            elif event in _NEVER:
                self.seen.append(f"{event} {arguments[:1]!r}")
            elif event in ("compile", "exec"):
                self._executed(event, arguments)
        except RecursionError:
            pass

    def _opened(self, path: Any, mode: Any, flags: Any) -> None:
        if not isinstance(path, str | bytes):
            return
        text = path.decode(errors="replace") if isinstance(path, bytes) else path
        letters = set(mode) if isinstance(mode, str) else set()
        writes = bool(letters & set("wax+")) or (isinstance(flags, int) and bool(flags & 0o3))
        real = str(Path(text).absolute())
        allowed = self._own if writes else self._readable
        if any(real.startswith(each) for each in self._outside) or not any(
            real == each or real.startswith(f"{each.rstrip('/')}/") for each in allowed
        ):
            self.seen.append(f"open {'to write' if writes else 'to read'} {real!r}")

    def _changed(self, event: str, arguments: tuple[Any, ...]) -> None:
        for each in arguments[:2]:
            if isinstance(each, str):
                real = str(Path(each).absolute())
                if not any(real == own or real.startswith(f"{own}/") for own in self._own):
                    self.seen.append(f"{event} {real!r}")

    def _executed(self, event: str, arguments: tuple[Any, ...]) -> None:
        source = arguments[1] if event == "compile" else getattr(arguments[0], "co_filename", "")
        # Modules that are imported late, and what the standard library makes of its own templates.
        if isinstance(source, str) and source.startswith(self._run):
            self.seen.append(f"{event} {source!r}")


def ways(run: Path, out: Path) -> dict[str, Callable[[], object]]:
    """Every way to read a run, by name."""
    import logging

    logging.disable(logging.CRITICAL)
    # It looks for fonts when it is first imported.
    import matplotlib.pyplot

    matplotlib.pyplot.close("all")
    from smdebug.rules.listing import default_rules
    from smdebug.rules.runner import RuleRunner
    from smdebug.storage.v1.event_file import FileReader
    from smdebug.trials.create import create_trial

    def opened() -> Any:
        return create_trial(str(run), wait_seconds=0)

    def questions() -> None:
        trial = opened()
        for collection in (*trial.collections(), "all"):
            trial.tensor_names(collection=collection)
        trial.steps(), trial.modes(), trial.workers(), trial.findings(), repr(trial)
        trial._repr_html_()

    def tensors() -> None:
        trial = opened()
        for name in trial.tensor_names()[:20]:
            tensor = trial.tensor(name)
            tensor._repr_html_()
            for step in tensor.steps(show_incomplete_steps=True)[:3]:
                _one_of_ours(partial(tensor.value, step))
                _one_of_ours(partial(tensor.shape, step))
                _one_of_ours(partial(tensor.reduction_value, step, "l2"))
                _one_of_ours(partial(tensor.reduction_values, step))
            tensor.shapes(), tensor.values(), tensor.series("mean")

    def rules() -> None:
        trial = opened()
        made, _ = default_rules(trial)
        runner = RuleRunner(trial, made, record=True)
        list(runner.looks(False, None))
        runner.finish()

    def plots() -> None:
        trial = opened()
        for collection in list(trial.collections())[:5]:
            _one_of_ours(partial(_drawn, trial, collection=collection, reduction="l2"))
        _one_of_ours(partial(_drawn, trial))

    def board() -> None:
        for path in sorted(filter(Path.is_file, run.rglob("*.tfevents")))[:5]:
            _one_of_ours(partial(_listed, FileReader(str(path)).read_tensors))
            _one_of_ours(FileReader(str(path)).read_events)

    def resumed() -> None:
        from tests.hook.numpy_hook import NumpyHook

        hook = NumpyHook(str(run), resume=True, on_error="raise", export_tensorboard=True,
                         save_config={"save_interval": 1})  # fmt: skip
        hook.run(loss=1.0)
        hook.close()

    found: dict[str, Callable[[], object]] = {
        "questions": questions,
        "tensors": tensors,
        "to_arrow": lambda: opened().to_arrow(),
        "to_pandas": lambda: opened().to_pandas(),
        "sql": lambda: opened().sql("select count(*), min(tensor), max(l2) from run"),
        "sql findings": lambda: opened().sql("select count(*) from findings"),
        "rules": rules,
        "plots": plots,
        "board": board,
    }
    for name, arguments in commands(run, out).items():
        found[name] = partial(_command, arguments)
    found["resume"] = resumed
    return found


def _drawn(trial: Any, **how: Any) -> None:
    trial.plot(**how).figure.canvas.draw()


def _listed(read: Callable[[], Any]) -> None:
    list(read())


def commands(run: Path, out: Path) -> dict[str, list[str]]:
    """Every command that reads a run."""
    place = str(run)
    found = {
        "ls": ["ls", place], "ls json": ["ls", place, "--json"], "show": ["show", place],
        "show json": ["show", place, "--json"],
        "layers": ["layers", place, "--regex", ".", "--reduction", "l2"],
        "smdebug rules": ["rules", place, "--no-record", "--all"], "diff": ["diff", place, place],
        "check": ["check", place], "check json": ["check", place, "--json"],
    }  # fmt: skip
    for kind in ("parquet", "csv", "safetensors", "npz", "tensorboard", "v1", "v2"):
        found[f"export {kind}"] = ["export", place, str(out / kind), "--format", kind]
    found["compact"] = ["compact", place, "--remove-orphans"]
    return found


def _command(arguments: list[str]) -> None:
    """Runs a command; one that says what is wrong, and ends with 2, has named it."""
    from smdebug.cli.main import main
    from smdebug.exceptions import SMDebugError

    sys.argv = ["smdebug", *arguments]
    said = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
        try:
            main()
        except SystemExit as ended:
            if ended.code == 2:
                raise SMDebugError(said.getvalue()[-150:]) from None
            if ended.code not in (0, 1, None):
                raise RuntimeError(f"it ended with {ended.code}") from None


def _one_of_ours(work: Callable[[], object]) -> None:
    from smdebug.exceptions import SMDebugError

    with contextlib.suppress(SMDebugError):
        work()


def attempt(work: Callable[[], object]) -> str:
    """What came of it, in a word."""
    from smdebug.exceptions import SMDebugError

    try:
        work()
    except SMDebugError as error:
        return f"named: {type(error).__name__}: {str(error)[:200]}"
    except BaseException as error:
        import traceback

        place = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{type(error).__name__}: {error}"[:300]
        return f"unnamed: {text} at {place.filename}:{place.lineno}"
    return "fine"


def main() -> None:
    """Tries the ways and tells what came of them."""
    asked = json.loads(sys.argv[1])
    watches: list[Watch] = []
    sys.addaudithook(lambda event, arguments: watches[-1](event, arguments) if watches else None)
    answers, opened = {}, []
    for place in asked["runs"]:
        run = Path(place)
        out = run.parent / f"{run.name}.out"
        out.mkdir(exist_ok=True)
        watch = Watch(run, out, asked["outside"])
        found = ways(run, out)
        watches.append(watch)
        for name in asked["ways"] or list(found):
            # The last line says what a process was at that did not live to tell.
            sys.stderr.write(f"{run.name}: {name}\n")
            sys.stderr.flush()
            watch.active = True
            answers[f"{run.name}: {name}"] = attempt(found[name])
            watch.active = False
        opened += [f"{run.name}: {each}" for each in watch.seen]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    told = {"answers": answers, "opened": opened, "peak": peak}
    Path(asked["told"]).write_text(json.dumps(told))


if __name__ == "__main__":
    main()
