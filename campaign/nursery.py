"""Forks the process that forks workers, as `web.jobs.process` would start it with `subprocess`."""

from __future__ import annotations

import functools
import json
import os
import signal
import socket
import subprocess
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

from adadino.scene.options import SceneOptions
from adadino.web.jobs import parent as parents
from adadino.web.jobs import predict, tasks
from campaign.kill import watch

LONGEST = 2**17
"""Bytes of a request: the variables of a worker are thousands."""


class Instead:
    """Stands for the module `subprocess` in `web.jobs.process`; only the first job is hit."""

    PIPE, DEVNULL = subprocess.PIPE, subprocess.DEVNULL

    def __init__(self, place: Path, at: int | None, server_too: bool) -> None:
        """Keep what the next parent is told.

        Args:
            place: Where the nursery listens.
            at: The operation before which the worker of the first job is killed.
            server_too: Whether the server goes with it.
        """
        self._place, self._at, self._too = place, at, server_too

    def Popen(self, *_: Any, pass_fds: list[int], env: dict[str, str], **__: Any) -> _Forked:  # noqa: N802
        """Have the nursery fork a parent with the server's socket."""
        task = {"at": self._at, "server": os.getpid() if self._too else None, "env": env}
        return _Forked(self._place, task, pass_fds[0])


class _Forked:
    """A parent that the nursery forked, as `Workers` uses a `subprocess.Popen`."""

    def __init__(self, place: Path, task: dict[str, Any], control: int) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asked:
            asked.connect(str(place / "nursery"))
            socket.send_fds(asked, [json.dumps(task).encode()], [control])
            self.pid = int(asked.recv(20))

    def poll(self) -> int | None:
        """Its exit code: that of a killed process, since nobody else's child can be asked."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return -signal.SIGKILL
        return None

    def kill(self) -> None:
        """End it."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        """Wait until it is gone."""
        while self.poll() is None:
            time.sleep(0.002)
        return -signal.SIGKILL


def nursery(place: Path, jobs: Path) -> None:
    """Fork parents for whoever asks."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(str(place / "nursery"))
        listening.listen()
        (place / "born").touch()
        while True:
            asked, _ = listening.accept()
            with asked, suppress(OSError):  # a server that was killed as it asked
                said, received, *_ = socket.recv_fds(asked, LONGEST, 1)
                if not said:
                    continue
                child = os.fork()
                if child == 0:
                    listening.close()
                    _be_parent(json.loads(said), received[0], place, jobs)
                for handle in received:
                    os.close(handle)
                asked.send(str(child).encode())


def _be_parent(told: dict[str, Any], control: int, place: Path, jobs: Path) -> None:
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        with (place / "worker-log").open("a") as words:
            os.dup2(words.fileno(), 2)
        os.environ.update(told["env"])
        # Several rows of tiles in a small scene, and nothing to wait for.
        predict.SceneOptions = functools.partial(SceneOptions, tile=64, overlap=16)  # type: ignore[misc,assignment]
        speed = {"mp_per_s": 1.0, "overhead_s": 1.0, "device": "cpu", "device_name": "1 thread"}
        predict.measure = lambda *_: speed
        tasks.work = _counted(tasks.work, told["at"], place, jobs)
        with socket.socket(fileno=control) as server:
            _Parent(server, told["server"]).serve()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def _counted(work: Any, at: int | None, place: Path, jobs: Path) -> Any:
    """Do a task; a job's operations are counted, or end its worker at one."""

    def counted(task: dict[str, Any], held: Any, said: Any) -> None:
        if task["kind"] == "predict":
            first = not (place / "hit").exists()
            if at is not None and first:
                (place / "hit").touch()
            watch(jobs, at if first else None, None if at else place / "worker-operations")
        work(task, held, said)

    return counted


class _Parent(parents.Parent):
    """Takes the server along when the first worker of a job is killed."""

    def __init__(self, control: socket.socket, server: int | None) -> None:
        super().__init__(control)
        self._victim = server

    def _bury(self, number: int) -> None:
        # The server has heard nothing yet: as if both had ended at once.
        process = self._workers[number][0]
        ended = os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT)
        if self._victim is not None and ended and ended.si_status == signal.SIGKILL:
            os.kill(self._victim, signal.SIGKILL)
        super()._bury(number)
