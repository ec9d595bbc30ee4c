"""The process that forks one worker for each task, after it has imported what workers need.

- It opens no stranger's file, starts no thread and never touches a GPU, so that forking is safe.
  A worker (`tasks`) inherits the imported libraries and the loaded models, confines itself
  (`sandbox`) and ends with its task.
- The server sends a message on a socket for each task, with the pipe that the worker shall answer
  on. This process says on the socket when a worker began and ended: the worker itself may have been
  taken over by the file it read.
- It ends when the server does, and takes its workers along.

Where forking is not safe (macOS, Windows), `main` with `alone` is one worker for one task.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import stat
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

LONGEST = 2**16
"""Bytes of a message; a task is some hundred."""


def main(arguments: list[str]) -> None:
    """Serve tasks on the socket whose number is given, or one task from standard input."""
    from adadino.web.jobs import tasks

    with suppress(OSError, AttributeError):
        os.nice(5)  # the page goes first
    if arguments == ["alone"]:
        setup, task = (json.loads(sys.stdin.readline()) for _ in range(2))
        said = os.fdopen(os.dup(1), "w", buffering=1)
        os.dup2(2, 1)  # whatever a library prints must not be taken for an answer
        tasks.work(task, tasks.prepare(setup), said)
        return
    with socket.socket(fileno=int(arguments[0])) as server:
        Parent(server).serve()


class Parent:
    """Forks workers and tells the server of their ends."""

    def __init__(self, server: socket.socket) -> None:
        self._server = server
        self._workers: dict[int, tuple[int, int]] = {}
        """By number: process, and its handle."""

    def serve(self) -> None:
        """Get ready, then fork until the server is gone."""
        from adadino.web.jobs import tasks

        setup = json.loads(self._server.recv(LONGEST) or b"null")
        try:
            with _quiet_registration():
                tasks.preload(setup)
            held = tasks.prepare(setup)
        except Exception as error:
            self._say(unusable=tasks.sentence(error))
            return None
        self._say(ready=True)
        selector = selectors.DefaultSelector()
        selector.register(self._server, selectors.EVENT_READ, None)
        while True:
            for key, _ in selector.select():
                if key.data is not None:
                    selector.unregister(key.fileobj)
                    self._bury(key.data)
                    continue
                number = self._hear(held)
                if number is None:
                    return self._end()
                if number in self._workers:
                    selector.register(self._workers[number][1], selectors.EVENT_READ, number)

    def _hear(self, held: Any) -> int | None:
        """Do what the server asks; the number of a new worker, -1 for none, None at the end."""
        try:
            text, pipes, _, _ = socket.recv_fds(self._server, LONGEST, 1)
        except OSError:
            return None
        if not text:
            return None
        asked = json.loads(text)
        if "kill" in asked:
            if asked["kill"] in self._workers:
                os.kill(self._workers[asked["kill"]][0], signal.SIGKILL)
            return -1
        number, (pipe,) = asked["start"], pipes
        process = os.fork()
        if process == 0:
            self._become(asked["task"], held, pipe)
        os.close(pipe)
        self._workers[number] = process, os.pidfd_open(process)
        self._say(began=number, process=process)
        return int(number)

    def _become(self, task: dict[str, Any], held: Any, pipe: int) -> None:
        """In the new process: keep its own pipe and nothing else, work, and end."""
        from adadino.web.jobs import tasks

        code = 1
        try:
            os.dup2(pipe, 1)
            _close_all()
            said = os.fdopen(os.dup(1), "w", buffering=1)
            os.dup2(2, 1)  # whatever a library prints must not be taken for an answer
            null = os.open(os.devnull, os.O_RDONLY)
            os.dup2(null, 0)
            tasks.work(task, held, said)
            code = 0
        finally:
            os._exit(code)

    def _bury(self, number: int) -> None:
        process, handle = self._workers.pop(number)
        _, status = os.waitpid(process, 0)
        os.close(handle)
        self._say(ended=number, code=os.waitstatus_to_exitcode(status))

    def _end(self) -> None:
        for process, _ in self._workers.values():
            os.kill(process, signal.SIGKILL)

    def _say(self, **message: object) -> None:
        with suppress(OSError):
            self._server.send(json.dumps(message).encode())


def _close_all() -> None:
    """Close sockets and pipes, other workers' among them.

    Plain files stay: they are PROJ's databases, which libraries keep open and go on to read from by
    number, whatever file that number would mean by then.
    """
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        with suppress(OSError):  # the folder itself is in the list
            if int(name) > 2 and not stat.S_ISREG(os.fstat(int(name)).st_mode):
                os.close(int(name))


@contextmanager
def _quiet_registration() -> Iterator[None]:
    """Keep GDAL from telling of every driver that `GDAL_SKIP` names and its build has not."""
    kept = os.dup(2)
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)


if __name__ == "__main__":
    main(sys.argv[1:])
