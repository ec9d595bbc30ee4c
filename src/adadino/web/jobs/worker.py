"""A worker as the server sees it: what it says, how long it may say it, and its end.

A stranger's file may have taken a worker over, so that nothing it says is trusted: which process it
is and when it ended come from whoever started it (`process`).
"""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from adadino.errors import AdaDINOError, InputError, WriteError

LOOK_S = 0.25
"""How often the memory and the time of a worker are looked at."""
PATIENCE_S = 5.0
"""How long the end of a worker is waited for that has said its last word."""
LONGEST_LINE, MOST_EVENTS = 2**20, 1000
"""What is read ahead of a worker's answers: a stranger's file may have made it say anything."""


class WorkerEndedError(AdaDINOError):
    """A worker that ended without an answer: it crashed, or it was killed."""

    def __init__(self, code: int | None) -> None:
        self.code = code
        how = "ended" if code is None else f"ended with code {code}"
        if code is not None and code < 0:
            how = f"was killed (signal {-code})"
        super().__init__(
            f"the process that computed it {how}; is the memory full? Try a smaller scene."
        )


class OverLimitError(AdaDINOError):
    """A worker that took more time or memory than it may."""


class Worker:
    """One running worker."""

    def __init__(self, answers: IO[bytes], kill: Callable[[], None]) -> None:
        self.process: int | None = None
        """Its number, once its parent has said so."""
        self.held: dict[str, bool] = {}
        """Which protections hold for it."""
        self._events: queue.Queue[dict[str, Any] | None] = queue.Queue(MOST_EVENTS)
        self._kill = kill
        self._code: int | None = None
        self._ended, self._sound = threading.Event(), True
        threading.Thread(target=self._listen, args=(answers,), daemon=True).start()

    def kill(self) -> None:
        """End it at once; `events` then ends too."""
        self._kill()

    def end(self, code: int | None) -> None:
        """Note that it has ended; for whoever started it."""
        self._code = code
        self._ended.set()

    def events(
        self, *, seconds: float | None = None, memory: int | None = None
    ) -> Iterator[dict[str, Any]]:
        """What the worker tells until it has ended.

        Args:
            seconds: The longest it may take, by the clock.
            memory: The most memory it may use, where the system tells how much that is.

        Raises:
            WorkerEndedError: It ended without saying that it was done or had failed.
            OverLimitError: It was killed because it took too much.
        """
        until = None if seconds is None else time.monotonic() + seconds
        answered = False
        while True:
            try:
                event = self._events.get(timeout=LOOK_S)
            except queue.Empty:
                self._look(until, memory)
                continue
            if event is None:
                self.kill()  # it may have closed its pipe and gone on
                self._ended.wait(timeout=PATIENCE_S)
                if not answered or not self._sound:
                    raise WorkerEndedError(self._code)
                return
            if event["event"] == "started":
                self.held = event["held"]
                continue
            answered = answered or event["event"] in ("done", "failed")
            yield event
            self._look(until, memory)

    def result(self, *, seconds: float, memory: int | None = None) -> dict[str, Any]:
        """Wait for its answer.

        Raises:
            InputError: The task failed, with the worker's sentence.
            WorkerEndedError, OverLimitError: As in `events`.
        """
        answer: dict[str, Any] = {}
        for event in self.events(seconds=seconds, memory=memory):
            answer = event if event["event"] in ("done", "failed") else answer
        if answer["event"] == "failed":
            raise (WriteError if answer.get("disk") else InputError)(answer["error"])
        return answer

    def _look(self, until: float | None, memory: int | None) -> None:
        over = None
        if until is not None and time.monotonic() > until:
            over = "it took more time than this server gives a job (--max-job-time)"
        elif memory is not None and self.process and used_memory(self.process) > memory:
            over = f"it took more than {memory / 2**30:,.0f} GB of memory (--max-job-memory)"
        if over is not None:
            self.kill()
            raise OverLimitError(f"{over}; cut the scene, or use `adadino predict`.")

    def _listen(self, answers: IO[bytes]) -> None:
        """Read the worker's lines; one that makes no sense is the last."""
        with answers:
            while line := answers.readline(LONGEST_LINE):
                event = _parsed(line)
                if event is None:
                    self._sound = False
                    self.kill()
                    break
                self._events.put(event)
        self._events.put(None)


def _parsed(line: bytes) -> dict[str, Any] | None:
    """An event with all its parts; None for anything else."""
    try:
        event = json.loads(line) if line.endswith(b"\n") else None
    except (ValueError, RecursionError):
        return None
    parts = _PARTS.get(event.get("event", "")) if isinstance(event, dict) else None
    if parts is None or not isinstance(event, dict):
        return None
    sound = all(isinstance(event.get(name), kind) for name, kind in parts.items())
    return event if sound and event.get("phase", PHASES[0]) in PHASES else None


PHASES = ("adapting", "opening", "preparing", "predicting", "writing")
_NUMBER = (int, float, type(None))
_PARTS: dict[str, dict[str, Any]] = {
    "started": {"held": dict},
    "view": {"view": dict},
    "progress": {
        "phase": str, "done": int, "total": int, "tiles_per_s": _NUMBER, "mp_per_s": _NUMBER,
        "eta_s": _NUMBER,
    },
    "failed": {"error": str, "disk": bool},
    "done": {},
}  # fmt: skip
"""What each event must hold."""


def used_memory(process: int) -> int:
    """Bytes that a process uses alone or shares by no file; 0 where the system does not tell."""
    with suppress(OSError, ValueError, IndexError):
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
        counted = [line for line in lines if line.startswith(("RssAnon:", "RssShmem:"))]
        return sum(int(line.split()[1]) * 1024 for line in counted)
    return 0
