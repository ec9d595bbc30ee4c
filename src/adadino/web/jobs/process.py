"""Workers as the server sees them: a process to start for a task, to listen to and to kill.

One worker serves one task and ends, because what keeps it to its files (`sandbox`) cannot be taken
off again. On Linux a warm parent forks it (`parent`); elsewhere it is started anew.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import queue
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from adadino.errors import AdaDINOError, InputError, WriteError
from adadino.web.door import narrow_gdal
from adadino.web.jobs.sandbox import Reach, can_fork

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
    """One running worker.

    A stranger's file may have taken it over, so that nothing it says is trusted: which process it
    is and when it ended come from whoever started it.
    """

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


PHASES = ("opening", "preparing", "predicting", "writing")
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


def used_memory(process: int) -> int:
    """Bytes that a process uses alone or shares by no file; 0 where the system does not tell."""
    with suppress(OSError, ValueError, IndexError):
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
        counted = [line for line in lines if line.startswith(("RssAnon:", "RssShmem:"))]
        return sum(int(line.split()[1]) * 1024 for line in counted)
    return 0


def _plain(reach: Reach) -> dict[str, Any]:
    """As JSON has it."""
    found = dataclasses.asdict(reach)
    return found | {name: [str(path) for path in found[name]] for name in ("read", "write")}
