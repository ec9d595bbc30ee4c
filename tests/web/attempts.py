"""What a worker that was taken over would try, in a process confined as a worker is.

`python -m tests.web.attempts` reads a task from standard input: what the process may reach, and
paths and processes that are not its business. It writes what became of each attempt.
"""

from __future__ import annotations

import ctypes
import errno
import json
import mmap
import os
import platform
import resource
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from adadino.web.jobs.sandbox import Reach, confine

ARM = platform.machine() == "aarch64"
LIBC = ctypes.CDLL(None, use_errno=True)


def call(x86: int, arm: int, *arguments: Any) -> int:
    """A call of the kernel by its number.

    Raises:
        OSError: The kernel refuses.
    """
    done = int(LIBC.syscall(arm if ARM else x86, *map(ctypes.c_long, arguments)))
    if done < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return done


def watch(folder: Path) -> None:
    """Have the kernel tell of every name that is used in a folder.

    Raises:
        OSError: It does not.
    """
    handle = LIBC.inotify_init1(0)
    if LIBC.inotify_add_watch(handle, os.fsencode(folder), 0xFFF) < 0:
        raise OSError(ctypes.get_errno(), "not watched")


def _sockets() -> dict[str, Callable[[], Any]]:
    kinds = {"tcp": socket.SOCK_STREAM, "udp": socket.SOCK_DGRAM, "raw": socket.SOCK_RAW}
    families = ("AF_INET", "AF_INET6", "AF_UNIX", "AF_NETLINK", "AF_PACKET", "AF_VSOCK")
    return {
        f"socket {family} {name}": lambda f=family, k=kind: socket.socket(getattr(socket, f), k)
        for family in families
        if hasattr(socket, family)
        for name, kind in kinds.items()
    } | {"socketpair": lambda: socket.socketpair()}


def _others(server: int) -> dict[str, Callable[[], Any]]:
    """Other processes."""
    place = ctypes.create_string_buffer(64)
    return {
        "kill server": lambda: os.kill(server, 0),
        "kill parent": lambda: os.kill(os.getppid(), 0),
        "tgkill server": lambda: call(234, 131, server, server, 0),
        "pidfd server": lambda: signal.pidfd_send_signal(os.pidfd_open(server), signal.Signals(2)),
        "ptrace server": lambda: call(101, 117, 16, server, 0, 0),
        "ptrace parent": lambda: call(101, 117, 16, os.getppid(), 0, 0),
        "read memory": lambda: call(310, 270, server, ctypes.addressof(place), 1, 0, 1, 0),
        "write memory": lambda: call(311, 271, server, ctypes.addressof(place), 1, 0, 1, 0),
        "limit server": lambda: resource.prlimit(server, resource.RLIMIT_CORE, (0, 0)),
        "slow server": lambda: os.setpriority(os.PRIO_PROCESS, server, 19),
        "fork": _fork,
        "io_uring": lambda: call(425, 425, 4, ctypes.addressof(place)),
        "unshare": lambda: call(272, 97, 0x10000000),
        "keyring": lambda: call(250, 219, 0, -3, 1),
        "bpf": lambda: call(321, 280, 0, 0, 0),
        "shared segment": lambda: call(29, 194, 0, 4096, 0o1600),
        "message queue": lambda: call(68, 186, 0, 0o1600),
        "perf": lambda: call(298, 241, ctypes.addressof(place), 0, -1, -1, 0),
    }


def _fork() -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


def _files(task: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    tried: dict[str, Callable[[], Any]] = {}
    for path in map(Path, task["closed"]):
        tried[f"read {path}"] = lambda p=path: p.open("rb").read(1) if not p.is_dir() else [
            *os.scandir(p)
        ]  # fmt: skip
    for path in map(Path, task["kept"]):
        tried |= {
            f"append {path}": lambda p=path: p.open("ab").close(),
            f"truncate {path}": lambda p=path: os.truncate(p, 0),
            f"remove {path}": lambda p=path: p.unlink(),
            f"rename {path}": lambda p=path: p.rename(p.with_name("other")),
            f"mode {path}": lambda p=path: p.chmod(0o777),
            f"time {path}": lambda p=path: os.utime(p, (1, 1)),
            f"label {path}": lambda p=path: os.setxattr(p, "user.a", b"1"),
        }
    for folder in map(Path, task["folders"]):
        tried[f"make {folder}"] = lambda f=folder: (f / "new").write_text("")
        tried[f"watch {folder}"] = lambda f=folder: watch(f)
        tried[f"make folder {folder}"] = lambda f=folder: (f / "newer").mkdir()
    for folder in map(Path, task["own"]):
        tried |= {
            f"symlink {folder}": lambda f=folder: (f / "s").symlink_to("/etc/passwd"),
            f"fifo {folder}": lambda f=folder: os.mkfifo(f / "f"),
            f"device {folder}": lambda f=folder: os.mknod(f / "d", 0o20600, os.makedev(1, 5)),
            f"special {folder}": lambda f=folder: os.mknod(f / "u", 0o140600),
        }
        for path in map(Path, task["kept"]):
            tried[f"link {path} {folder}"] = lambda p=path, f=folder: os.link(p, f / "l")
    return tried


def _allowed(task: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """What work needs."""

    def compute() -> None:
        import torch

        torch.set_num_threads(2)
        torch.rand(400, 400) @ torch.rand(400, 400)
        torch.nn.Conv2d(3, 8, 3)(torch.rand(1, 3, 64, 64))

    def frames(folder: Path) -> None:
        import geopandas
        import shapely

        made = geopandas.GeoDataFrame(geometry=[shapely.box(0, 0, 1, 1)], crs="EPSG:32633")
        made.to_file(folder / "a.gpkg", driver="GPKG")
        assert len(geopandas.read_file(folder / "a.gpkg").to_crs("EPSG:4326")) == 1

    def image(folder: Path) -> None:
        import numpy as np
        import rasterio

        with rasterio.open(
            folder / "a.tif", "w", driver="GTiff", width=9, height=9, count=1, dtype="uint8",
            crs="EPSG:32633",
        ) as file:  # fmt: skip
            file.write(np.ones((1, 9, 9), np.uint8))

    thread = threading.Thread(target=lambda: None)
    tried: dict[str, Callable[[], Any]] = {"thread": lambda: (thread.start(), thread.join())}
    for path in map(Path, task["open"]):
        tried[f"read {path}"] = lambda p=path: p.open("rb").read(1)
    for folder in map(Path, task["own"]):
        tried |= {f"vector {folder}": lambda f=folder: frames(f),
                  f"raster {folder}": lambda f=folder: image(f)}  # fmt: skip
    if task.get("torch"):
        tried["torch"] = compute
    return tried


def _exhaust(task: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    most = task["reach"]["memory"]
    if most is None:
        return {}
    return {
        "memory": lambda: bytearray(most),
        "mapped memory": lambda: mmap.mmap(-1, most, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS),
        "limit": lambda: resource.setrlimit(resource.RLIMIT_DATA, (2**50, 2**50)),
    }


def main() -> None:
    """Confine and try."""
    task = json.loads(sys.stdin.read())
    if task.get("torch"):
        import torch  # noqa: F401
    from adadino.web.jobs.tasks import preload

    preload({"kind": "view"})
    given = task["reach"]
    paths = {name: tuple(map(Path, given[name])) for name in ("read", "write")}
    held = confine(Reach(**given | paths))
    if task.get("spin"):
        while True:
            pass
    refused = {**_files(task), **_others(task["server"]), **_sockets(), **_exhaust(task)}
    found = {name: outcome(tried) for name, tried in refused.items()}
    needed = {name: outcome(tried) for name, tried in _allowed(task).items()}
    print(json.dumps({"held": held, "refused": found, "needed": needed}))


def outcome(tried: Callable[[], Any]) -> str:
    """`done`, or how it was refused."""
    try:
        tried()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error.errno))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "done"


if __name__ == "__main__":
    main()
