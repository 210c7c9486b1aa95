"""The environments tests run in; they cannot share one, because the frameworks disagree.

Environments live in .nox and are reused: an installation runs again only when its arguments or
pyproject.toml have changed.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import nox

nox.needs_version = ">=2024.4.15"
nox.options.reuse_venv = "yes"
nox.options.error_on_missing_interpreters = True
nox.options.sessions = [
    "core", "mxnet", "pytorch", "tensorflow", "tensorflow_legacy", "xgboost",
]  # fmt: skip

TORCH = "torch==2.13.0"
# Other people's trainers, which the hook has callbacks for.
TRAINERS = ["transformers>=5", "lightning>=2.5", "accelerate>=1.10"]
TENSORFLOW = "tensorflow-cpu==2.21.0"
# The last one with Keras 2 and Estimator; it needs the packages of that time.
TENSORFLOW_LEGACY = ["tensorflow-cpu==2.15.1", "numpy<2", "pyarrow<26", "pandas<3"]
# The oldest numpy and pyarrow we promise to work with; newer ones do not work with MXNet.
MXNET = ["mxnet==1.9.1", "numpy==1.23.5", "pyarrow==18.0.0", "pandas<3"]
# The wheel without the code for GPUs, which is ten times as large.
XGBOOST = "xgboost-cpu==3.2.0"

# smdebug 1.0.34 has our import name and needs old packages: it lives alone.
PEER = Path(".nox") / "peer"
PEER_PACKAGES = [
    "smdebug==1.0.34",
    TORCH,
    "numpy<2",
    "setuptools<81",
    "psutil",
    "requests",
    "pandas",
]
# Pinned: what counts as well formatted, or as well typed, changes with every release.
LINT_PACKAGES = ["ruff==0.17.4", "mypy==2.4.1", "nox"]
# Pinned: what makes a strict build fail changes with them, too.
DOCS_PACKAGES = ["mkdocs-material==9.8.1", "mkdocstrings-python==2.0.10"]
PYTEST_PACKAGES = ["pytest>=8", "pytest-xdist>=3.6", "hypothesis>=6.100", "moto[server,s3]>=5"]
TEST_PACKAGES = [*PYTEST_PACKAGES, "tensorboard>=2.16"]
# Damages what is read, guided by which code it reaches.
FAULT_PACKAGES = [*TEST_PACKAGES, "atheris>=3", "psutil"]

# TensorFlow greets every process with a page of remarks on the machine.
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3"}

# The theme announces its successor at every build.
WITHOUT_NEWS = {"NO_MKDOCS_2_WARNING": "1"}
SITE = Path(".site")

# The tests of a file share what is expensive to make.
PARALLEL = ["--numprocesses=auto", "--maxprocesses=8", "--dist=loadfile"]

# What `make bench` writes.
PAGE = "docs/performance.md"

# What the hook is measured against.
BENCH_PACKAGES = ["wandb>=0.19", "tensorboard>=2.16"]

# Tests that need another library have a session of their own.
WITHOUT_FRAMEWORK = [
    f"--ignore=tests/{name}"
    for name in ("faults", "interop", "mxnet", "pytorch", "tensorflow", "xgboost")
]
# What is the same with the oldest packages: the site, its pages, and the commands, which are thin.
WHATEVER_THE_PACKAGES = [
    "--ignore=tests/cli", "--ignore=tests/site", "--ignore=tests/test_benchmarks.py",
    "--ignore-glob=tests/test_docs*", "--ignore=tests/test_examples.py",
]  # fmt: skip


@nox.session
def lint(session: nox.Session) -> None:
    """Style and types alone; they are checked in `core` too."""
    install(session, "-e", ".[cloud,sql,export]", *LINT_PACKAGES, *DOCS_PACKAGES, *TEST_PACKAGES)
    check_style(session)


@nox.session
def docs(session: nox.Session) -> None:
    """The documentation as a site, in .site."""
    install(session, "-e", ".", *DOCS_PACKAGES)
    build_site(session)
    session.log(f"open {SITE / 'index.html'}; with its search: python -m http.server -d {SITE}")


@nox.session
def core(session: nox.Session) -> None:
    """Style and types; the site of the documentation; everything that needs no framework."""
    packages = [*LINT_PACKAGES, *DOCS_PACKAGES, *TEST_PACKAGES]
    install(session, "-e", ".[cloud,sql,sagemaker,plot,export]", *packages)
    check_style(session)
    build_site(session)
    session.run(
        "pytest", *PARALLEL, *WITHOUT_FRAMEWORK, *session.posargs,
        env={"TORNASOLE_SITE": str(SITE.absolute())},
    )  # fmt: skip


@nox.session
def mxnet(session: nox.Session) -> None:
    """The MXNet hook and its examples; and what is below the commands, on the oldest packages."""
    install(session, "-e", ".[cloud,sql,sagemaker,plot,export]", *MXNET, *TEST_PACKAGES)
    others = [each for each in WITHOUT_FRAMEWORK if not each.endswith("mxnet")]
    session.run("pytest", *PARALLEL, *others, *WHATEVER_THE_PACKAGES, *session.posargs)


@nox.session
def pytorch(session: nox.Session) -> None:
    """The PyTorch hook, its examples and the demo; runs and scripts of smdebug 1.0.34; faults."""
    install(session, "-e", ".[cloud,sql,demo]", TORCH, *TRAINERS, *FAULT_PACKAGES)
    session.run(
        "pytest", *PARALLEL, "tests/pytorch", "tests/interop", "tests/faults", *session.posargs,
        env={"TORNASOLE_PEER_PYTHON": peer_python(session)},
    )  # fmt: skip


@nox.session
def faults(session: nox.Session) -> None:
    """Every promise of docs/guarantees.md put to the proof, with a table at the end."""
    install(session, "-e", ".[cloud,sql,sagemaker,plot,export]", TORCH, *FAULT_PACKAGES)
    session.run(
        # Not in parallel: some of them fill the machine by themselves, for half an hour.
        "pytest", "-o", "faulthandler_timeout=0", "tests/faults", *session.posargs,
        env={"TORNASOLE_FAULTS": "full"},
    )  # fmt: skip


@nox.session
def tensorflow(session: nox.Session) -> None:
    """The hooks for TensorFlow and for Keras 3, whose other backends are PyTorch and JAX."""
    install(session, "-e", ".[cloud,sql]", TENSORFLOW, TORCH, "jax", *TEST_PACKAGES)
    session.run("pytest", *PARALLEL, "tests/tensorflow", *session.posargs, env=QUIET)


@nox.session
def tensorflow_legacy(session: nox.Session) -> None:
    """The same with Keras 2, and Estimator."""
    # It brings the TensorBoard of its own time.
    install(session, "-e", ".[cloud,sql]", *TENSORFLOW_LEGACY, *PYTEST_PACKAGES)
    session.run("pytest", *PARALLEL, "tests/tensorflow", *session.posargs, env=QUIET)


@nox.session
def xgboost(session: nox.Session) -> None:
    """The XGBoost hook and its examples."""
    install(session, "-e", ".[cloud,sql]", XGBOOST, "scikit-learn", *TEST_PACKAGES)
    session.run("pytest", *PARALLEL, "tests/xgboost", *session.posargs)


@nox.session
def browser(session: nox.Session) -> None:
    """Pages as a person sees them, in chromium, which must be installed."""
    install(session, "-e", ".", *TEST_PACKAGES)
    pictures = Path(".nox") / "pictures"
    session.run(
        "pytest", "-m", "browser", "tests/browser", *session.posargs,
        env={"TORNASOLE_PICTURES": str(pictures.absolute())},
    )  # fmt: skip
    session.log(f"look at the pictures in {pictures}")


@nox.session
def demo(session: nox.Session) -> None:
    """Two deep networks, one of which cannot learn, and what their runs tell about it."""
    install(session, "-e", ".[demo]", TORCH)
    session.run("smdebug", "demo", *session.posargs)


@nox.session
def gym(session: nox.Session) -> None:
    """Faults planted in real trainings, and which rule finds which."""
    install(session, "-e", ".", TORCH)
    session.run("python", "-m", "smdebug.testing.faults", *session.posargs)


@nox.session
def pictures(session: nox.Session) -> None:
    """The pictures of docs/rules.md, each made of a training in which the rule finds something."""
    install(session, "-e", ".[plot]", TORCH, XGBOOST)
    session.run("python", "-m", "tools.rule_pictures", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """The performance figures, beside other libraries and the plain operations below us."""
    install(session, "-e", ".[sql,plot]", TORCH, XGBOOST, TENSORFLOW, *BENCH_PACKAGES)
    session.run(
        "python", "-m", "benchmarks", "--peer", peer_python(session), "--page", PAGE,
        *session.posargs, env=QUIET,
    )  # fmt: skip


@nox.session
def bench_mxnet(session: nox.Session) -> None:
    """The figures of the MXNet hook, which cannot be where the others are, for the same page."""
    install(session, "-e", ".[plot]", *MXNET)
    session.run(
        "python", "-m", "benchmarks", "--only", "mxnet_cost", "--page", PAGE, *session.posargs
    )


def check_style(session: nox.Session) -> None:
    """Style, format and types of everything."""
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")
    session.run("mypy")


def build_site(session: nox.Session) -> None:
    """The site of the documentation; a link that leads nowhere, or a page that nothing leads to,
    is an error.
    """
    # Not --quiet: then --strict does not see the warnings either.
    session.run("mkdocs", "build", "--strict", env=WITHOUT_NEWS)


def install(session: nox.Session, *packages: str) -> None:
    """Installs into the session's environment, once."""
    once(Path(session.virtualenv.location), packages, lambda: session.install(*packages))


def peer_python(session: nox.Session) -> str:
    """The interpreter of the environment of smdebug 1.0.34, made on first use."""
    python = (PEER / "bin" / "python").absolute()
    if not python.exists():
        session.run_install(sys.executable, "-m", "venv", str(PEER), external=True)
    once(
        PEER,
        PEER_PACKAGES,
        lambda: session.run_install(
            str(python), "-m", "pip", "install", "--quiet", *PEER_PACKAGES, external=True
        ),
    )
    return str(python)


def once(environment: Path, packages: object, work: object) -> None:
    """Runs `work` unless it was done in this environment for the same packages."""
    text = repr(packages) + Path("pyproject.toml").read_text(encoding="utf-8")
    digest = hashlib.sha256(text.encode()).hexdigest()
    stamp = environment / "installed.sha256"
    if stamp.exists() and stamp.read_text(encoding="utf-8") == digest:
        return
    assert callable(work)
    work()
    stamp.write_text(digest, encoding="utf-8")
