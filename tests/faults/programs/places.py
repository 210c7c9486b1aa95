"""What can happen to the place that a run is saved to, done by the process that trains."""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import subprocess
from pathlib import Path

_LIBC = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_AT_FDCWD, _EXCHANGE = -100, 2
_CAPSET = 126 if os.uname().machine == "x86_64" else 91
_CAPABILITY_VERSION = 0x20080522
# CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH: with them the modes of files mean nothing.
_WITHOUT = 1 << 1 | 1 << 2
_FULL_DISK = "8m"


class Refused(Exception):
    """The operating system does not let a test do what it is about."""


def enter_own_mounts() -> None:
    """Gives this process, and those it starts, mounts of their own."""
    user, group = os.getuid(), os.getgid()
    flags = _CLONE_NEWNS | (_CLONE_NEWUSER if user else 0)
    if _LIBC.unshare(flags):
        raise Refused(f"unshare: {os.strerror(ctypes.get_errno())}")
    if user:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    _mount("--make-rprivate", "/")


def mount_small(path: Path) -> None:
    """Puts a file system of 8 MB where a run is to be."""
    path.mkdir(parents=True, exist_ok=True)
    _mount("-t", "tmpfs", "-o", f"size={_FULL_DISK}", "tmpfs", str(path))


def fill(path: Path) -> None:
    """Writes until there is no space left."""
    with (path / "filler.tmp").open("wb", 0) as file:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue


def make_read_only(path: Path) -> None:
    """Make a directory read-only for everything that is opened in it from now on."""
    _mount("--bind", str(path), str(path))
    _mount("-o", "remount,ro,bind", str(path))


def remove(path: Path) -> None:
    shutil.rmtree(path)


def replace(path: Path) -> None:
    """Puts a file in the place of a directory, which moves away."""
    moved = path.with_name(f"{path.name}-moved")
    moved.write_text("in the way")
    # At once: in between, the writer would make a new directory.
    if _LIBC.renameat2(_AT_FDCWD, os.fsencode(path), _AT_FDCWD, os.fsencode(moved), _EXCHANGE):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(path))


def deny(path: Path) -> None:
    """Takes the right to write away, in all directories there are."""
    for folder, _, _ in os.walk(path):
        Path(folder).chmod(0o555)


def allow(path: Path) -> None:
    """Gives it back."""
    for folder, _, _ in os.walk(path):
        Path(folder).chmod(0o755)


def obey_modes() -> None:
    """Makes this thread, and those it starts, one for whom the modes of files hold."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    data = (ctypes.c_uint32 * 6)()
    if _LIBC.syscall(_CAPSET - 1, header, data):
        raise Refused(f"capget: {os.strerror(ctypes.get_errno())}")
    for place in (0, 1, 2):
        data[place] &= ~_WITHOUT
    if _LIBC.syscall(_CAPSET, header, data):
        raise Refused(f"capset: {os.strerror(ctypes.get_errno())}")


def take_files() -> None:
    """Lets this process open no further file."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest)
    # Files that are closed from now on must not make room: not even one below.
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(lowest, 3), most))


def take_memory(megabytes: int) -> None:
    """Limit the memory of this process to its current size plus this much."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + (megabytes << 20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))


def _mount(*arguments: str) -> None:
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Refused(f"mount: {done.stderr.strip()}")
