"""Runs `adadino` as on a system that is not POSIX: `python tests/windows_like.py predict ...`.

What only POSIX has is taken away before the package is imported: modules, functions of `os`,
signals. Links cannot be made, and a file that this process holds open is neither replaced nor
removed. The libraries it stands on are imported first: they have their own tests on Windows.
"""

from __future__ import annotations

import os
import signal
import sys
import types
from pathlib import Path

MODULES = ("fcntl", "resource", "pwd", "grp", "termios", "pty", "tty", "syslog")
FUNCTIONS = (
    "fork", "forkpty", "killpg", "setsid", "setpgid", "getpgid", "getuid", "geteuid", "getgid",
    "sysconf", "sched_getaffinity", "sched_setaffinity", "mkfifo", "statvfs", "chown", "nice",
    "getloadavg", "wait3", "wait4", "uname", "setrlimit", "posix_fallocate", "posix_fadvise",
)  # fmt: skip
SIGNALS = ("SIGKILL", "SIGHUP", "SIGALRM", "SIGUSR1", "SIGUSR2", "SIGCHLD", "SIGSTOP", "SIGPIPE")


class Msvcrt(types.ModuleType):
    """Windows' locks: of bytes, mandatory, and gone when the file is closed."""

    LK_NBLCK, LK_LOCK = 2, 1

    def __init__(self) -> None:
        super().__init__("msvcrt")
        self.held: dict[int, int] = {}

    def locking(self, descriptor: int, mode: int, size: int) -> None:
        assert size == 1
        file = os.fstat(descriptor).st_ino
        place = os.lseek(descriptor, 0, os.SEEK_CUR)
        assert place > os.fstat(descriptor).st_size  # nobody reads there
        if self.held.get(file, descriptor) != descriptor:
            raise OSError(13, "Permission denied")
        self.held[file] = descriptor


def refuse_link(*_: object, **__: object) -> None:
    """Links need a privilege."""
    raise OSError(1314, "A required privilege is not held by the client")


def held_open(path: object) -> bool:
    """Whether this process has a file open."""
    try:
        wanted = Path(os.fsdecode(path)).stat()  # type: ignore[arg-type]
    except OSError:
        return False
    for descriptor in list(Path("/proc/self/fd").iterdir()):
        try:
            if os.path.samestat(os.fstat(int(descriptor.name)), wanted):
                return True
        except OSError:
            continue
    return False


def strictly(act):
    """The same act, refused where a file is open."""

    def strict(*paths, **options):
        for path in paths:
            if isinstance(path, str | bytes | os.PathLike) and held_open(path):
                raise PermissionError(13, "The process cannot access the file", str(path))
        return act(*paths, **options)

    return strict


def take_away() -> None:
    """Do it."""
    sys.modules.update(dict.fromkeys(MODULES))  # type: ignore[arg-type]
    sys.modules["msvcrt"] = Msvcrt()
    os.symlink = os.link = refuse_link
    for name in ("replace", "rename", "unlink", "remove"):
        setattr(os, name, strictly(getattr(os, name)))
    for name in FUNCTIONS:
        if hasattr(os, name):
            delattr(os, name)
    for name in SIGNALS:
        if hasattr(signal, name):
            delattr(signal, name)


if __name__ == "__main__":
    import fpdf  # noqa: F401
    import geopandas  # noqa: F401
    import pyogrio  # noqa: F401
    import rasterio  # noqa: F401
    import skimage.registration  # noqa: F401
    import torch._dynamo  # noqa: F401

    take_away()
    from adadino.cli.app import main

    main()
