"""The worker as the server sees it: a process to start, to send a job, to listen to and to kill."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import IO, Any

from adadino.web.settings import Settings


class WorkerProcess:
    """One running worker."""

    def __init__(self, settings: Settings) -> None:
        """Start it; it loads its models while we go on."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "adadino.web.jobs.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # Ctrl-C is for the server, which ends the worker in order.
            start_new_session=True,
        )
        models = [[choice.name, choice.source] for choice in settings.models]
        self.send(
            models=models,
            backbone=settings.backbone,
            device=settings.device,
            engine=settings.engine,
        )

    def send(self, **task: object) -> None:
        """Send a line; if nobody is there any more, `events` ends and tells."""
        with suppress(OSError, ValueError):
            self._pipe(self._process.stdin).write(json.dumps(task) + "\n")
            self._pipe(self._process.stdin).flush()

    def events(self) -> Iterator[dict[str, Any]]:
        """What the worker tells, until it is gone."""
        for line in self._pipe(self._process.stdout):
            with suppress(ValueError):
                yield json.loads(line)

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()

    def end(self) -> int:
        """Wait for its end and return its code; negative for a signal."""
        self.kill()
        code = self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                self._pipe(pipe).close()
        return code

    @property
    def pid(self) -> int:
        """The process' number."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    @staticmethod
    def _pipe(pipe: IO[str] | None) -> IO[str]:
        assert pipe is not None
        return pipe
