"""Start workers: a process for each task.

One worker serves one task and ends, because what keeps it to its files (`sandbox`) cannot be taken
off again. On Linux a warm parent forks it (`parent`); elsewhere it is started anew.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import re
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from typing import Any

from adadino.errors import AdaDINOError
from adadino.web.door import narrow_gdal
from adadino.web.jobs.sandbox import Reach, can_fork
from adadino.web.jobs.worker import Worker


class Workers:
    """Starts workers; its own process is started when the first is needed."""

    def __init__(self, setup: dict[str, Any], *, fork: bool | None = None) -> None:
        """Nothing is started yet.

        Args:
            setup: What workers need to know before their tasks: `tasks.prepare`.
            fork: Whether a warm parent forks them; by default where that is safe.
        """
        self._setup = setup
        self._forks = can_fork() if fork is None else fork
        self._lock = threading.RLock()
        self._numbers = itertools.count(1)
        self._parent: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._ready = threading.Event()
        self._problem: str | None = None
        self._living: dict[int, Worker] = {}
        """By the number that the parent knows them by."""

    def start(self, task: dict[str, Any], reach: Reach) -> Worker:
        """Start a worker on a task.

        Raises:
            AdaDINOError: No worker can be started; the sentence says why.
        """
        task = {**task, "reach": _plain(reach)}
        return self._fork(task) if self._forks else self._spawn(task)

    def wait(self) -> None:
        """Start the parent and wait until it is ready.

        Raises:
            AdaDINOError: It cannot be used.
        """
        if not self._forks:
            return
        with self._lock:
            self._ensure()
            ready = self._ready
        ready.wait()
        if self._problem is not None:
            raise AdaDINOError(self._problem)

    def close(self) -> None:
        """End the parent and every worker."""
        with self._lock:
            parent, self._parent = self._parent, None
            if self._control is not None:
                self._control.close()
                self._control = None
            if parent is not None:
                parent.kill()
                parent.wait()
            self._ready.set()

    def _fork(self, task: dict[str, Any]) -> Worker:
        self.wait()
        ours, theirs = os.pipe()
        try:
            with self._lock:
                number, control = next(self._numbers), self._control
                if control is None:
                    raise OSError("the parent is closed")
                message = json.dumps({"start": number, "task": task}).encode()
                worker = Worker(os.fdopen(ours, "rb"), lambda: self._tell(control, kill=number))
                self._living[number] = worker
                socket.send_fds(control, [message], [theirs])
        except OSError as error:
            raise AdaDINOError(
                "the process that computes does not start; see the server's log."
            ) from error
        finally:
            os.close(theirs)
        return worker

    def _tell(self, control: socket.socket, **message: object) -> None:
        with suppress(OSError):
            control.send(json.dumps(message).encode())

    def _ensure(self) -> None:
        """Have a parent that lives; the lock is held."""
        if self._parent is not None and self._parent.poll() is None:
            return
        self._problem, self._ready = None, threading.Event()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._parent = subprocess.Popen(
                [sys.executable, "-m", "adadino.web.jobs.parent", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env=environment(),
                start_new_session=True,  # Ctrl-C is for the server, which ends it in order
            )
        self._control = ours
        self._tell(ours, **self._setup)
        threading.Thread(target=self._await, args=(ours, self._ready), daemon=True).start()

    def _await(self, control: socket.socket, ready: threading.Event) -> None:
        try:
            said = json.loads(control.recv(2**16) or b"null")
        except OSError:
            said = None
        if not said or "ready" not in said:
            gone = "the process that loads the models ended; see the server's log."
            self._problem = said["unusable"] if said else gone
        ready.set()
        with suppress(OSError, ValueError):
            while said := control.recv(2**16):
                self._hear(json.loads(said))
        for worker in list(self._living.values()):  # they went with their parent
            worker.end(None)

    def _hear(self, said: dict[str, Any]) -> None:
        """What the parent says of a worker: that it has begun, or has ended."""
        if "began" in said and said["began"] in self._living:
            self._living[said["began"]].process = said["process"]
        elif "ended" in said and (worker := self._living.pop(said["ended"], None)) is not None:
            worker.end(said["code"])

    def _spawn(self, task: dict[str, Any]) -> Worker:
        process = subprocess.Popen(
            [sys.executable, "-m", "adadino.web.jobs.parent", "alone"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(),
            start_new_session=True,
        )  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(OSError):
            process.stdin.write(
                json.dumps(self._setup).encode() + b"\n" + json.dumps(task).encode() + b"\n"
            )
            process.stdin.close()
        worker = Worker(process.stdout, process.kill)
        worker.process = process.pid
        threading.Thread(target=lambda: worker.end(process.wait()), daemon=True).start()
        return worker


def environment() -> dict[str, str]:
    """A worker's variables: those that libraries need, no secret, and GDAL narrowed."""
    kept = {name: value for name, value in os.environ.items() if _KEPT.match(name)}
    return kept | narrow_gdal()


_KEPT = re.compile(
    r"(PATH|HOME|LANG|LANGUAGE|LC_\w+|TZ|TMPDIR|TEMP|TMP|VIRTUAL_ENV|LD_LIBRARY_PATH|PYTHON\w+"
    r"|(OMP|MKL|KMP|GOMP|OPENBLAS|NUMEXPR)_\w+|(CUDA|NVIDIA|HIP|ROCR|HSA|TORCH\w*|PYTORCH|TRITON)_\w+"
    r"|ADADINO_(CACHE|DEVICE)|XDG_CACHE_HOME|HF_(HOME|HUB_CACHE|HUB_OFFLINE)|PROJ_(LIB|DATA)|GDAL_DATA"
    r"|SYSTEMROOT|WINDIR|APPDATA|LOCALAPPDATA|USERPROFILE|PATHEXT|COMSPEC)\Z"
)
"""What a worker keeps of the server's environment."""


def _plain(reach: Reach) -> dict[str, Any]:
    """As JSON has it."""
    found = dataclasses.asdict(reach)
    return found | {name: [str(path) for path in found[name]] for name in ("read", "write")}
