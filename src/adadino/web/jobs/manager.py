"""Who is next: one job at a time, clients in turns, on one worker.

- A job that was running when the server died is taken up again: `predict_scene` goes on from the
  rows that are on disk.
- A job that takes the worker down is marked failed, and the next gets a new worker.
"""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adadino.errors import AdaDINOError, InputError
from adadino.web.jobs.library import find_image
from adadino.web.jobs.process import WorkerProcess
from adadino.web.jobs.records import RECORD, Job
from adadino.web.jobs.store import JobGoneError, JobStore
from adadino.web.jobs.worker import RESULT
from adadino.web.settings import Settings

MOST_ATTEMPTS = 3
SWEEP_S = 600.0
"""How often old jobs are looked for."""


@dataclass(frozen=True)
class Ready:
    """What a worker said of itself."""

    device: str
    device_name: str
    speeds: dict[str, float]
    """Megapixels per second of each model."""


class Manager:
    """The queue and its worker, in a thread of their own."""

    def __init__(
        self, settings: Settings, store: JobStore, *, fatal: Callable[[str], None] | None = None
    ) -> None:
        """Take up what an earlier server left; nothing runs before `start`.

        Args:
            settings: The server's.
            store: Where jobs are.
            fatal: Whom to tell that no model can be used; the server then ends.
        """
        self.settings, self.store = settings, store
        self.ready: Ready | None = None
        self.crashes = 0
        self.served: dict[str, float] = {}
        """When each client had its last turn."""
        self._fatal = fatal
        self._progress: dict[str, dict[str, Any]] = {}
        self._cancelled: set[str] = set()
        self._running: str | None = None
        self._worker: WorkerProcess | None = None
        self._stopping = False
        self._wake = threading.Condition()
        self._thread = threading.Thread(target=self._loop, name="jobs", daemon=True)
        for job in store.all():
            if job.state == "running":
                self._take_up(job)

    def start(self) -> None:
        """Start the worker and the queue."""
        self._thread.start()

    def stop(self) -> None:
        """End the worker; a running job is taken up by the next server."""
        with self._wake:
            self._stopping = True
            if self._worker is not None:
                self._worker.kill()
            self._wake.notify_all()
        if self._thread.is_alive():
            self._thread.join(timeout=10)

    def wake(self) -> None:
        """There is a new job."""
        with self._wake:
            self._wake.notify_all()

    def progress(self, identity: str) -> dict[str, Any] | None:
        """Tiles done and to do, speed and time left of a running job."""
        return self._progress.get(identity)

    def place(self, identity: str) -> int | None:
        """How many jobs come before this one; None if it does not wait."""
        queue, served = self._waiting(), dict(self.served)
        for place in range(len(queue)):
            job = _fairest(queue, served)
            if job.id == identity:
                return place + (self._running is not None)
            queue.remove(job)
            served[job.client] = time.time() + place
        return None

    def cancel(self, identity: str) -> Job:
        """End a job; what it has made goes. An ended job stays as it is."""
        with self._wake:
            job = self.store.get(identity)
            if job.state == "queued":
                return self._cancel(identity)
            if job.state == "running" and self._running == identity:
                self._cancelled.add(identity)
                if self._worker is not None:
                    self._worker.kill()
                self._wake.wait_for(lambda: self._running != identity, timeout=10)
            return self.store.get(identity)

    def remove(self, identity: str) -> None:
        """End a job and forget it."""
        self.cancel(identity)
        self.store.remove(identity)

    def sweep(self) -> list[str]:
        """Remove jobs that are too old or too many."""
        limits = self.settings.limits
        return self.store.expire(days=limits.keep_days, size=limits.keep_bytes)

    def _take_up(self, job: Job) -> None:
        if self._finish(job.id):
            return
        if job.attempts >= MOST_ATTEMPTS:
            text = f"the server ended {job.attempts} times while it ran; start it again."
            self._change(job.id, state="failed", error=text, ended=time.time())
        else:
            self._change(job.id, state="queued")

    def _loop(self) -> None:
        self._begin_worker()
        swept = 0.0
        while not self._stopping:
            if time.monotonic() - swept > SWEEP_S:
                self.sweep()
                swept = time.monotonic()
            with self._wake:
                queue = self._waiting()
                if not queue or self.ready is None:
                    self._wake.wait(timeout=60.0)
                    continue
                job = _fairest(queue, self.served)
                self.served[job.client] = time.time()
                self._running = job.id
                self._change(
                    job.id, state="running", started=time.time(), attempts=job.attempts + 1
                )
            try:
                self._run(job)
            except Exception as error:  # a full disk, say: the queue must go on
                self._change(job.id, state="failed", error=f"{error}", ended=time.time())
            finally:
                self._progress.pop(job.id, None)
                with self._wake:
                    self._running = None
                    self._wake.notify_all()
            self.sweep()
        if self._worker is not None:
            self._worker.end()

    def _begin_worker(self) -> bool:
        """Start a worker and wait until it has its models."""
        with self._wake:
            if self._stopping:
                return False
            self._worker = WorkerProcess(self.settings)
        for event in self._worker.events():
            if event["event"] == "ready":
                self.ready = Ready(event["device"], event["device_name"], event["speeds"])
                return True
            if event["event"] == "unusable":
                self._give_up(event["error"])
        code = self._worker.end()
        if self.ready is None and not self._stopping:
            self._give_up(f"the process that loads the models ended with code {code}.")
        return False

    def _give_up(self, why: str) -> None:
        if self.ready is None and self._fatal is not None and not self._stopping:
            self._fatal(why)
            self._stopping = True

    def _run(self, job: Job) -> None:
        """Send a job to the worker and follow it to its end."""
        task = {
            "job": job.id,
            "folder": str(self.store.path(job.id)),
            "before": str(self._input(job, job.before)),
            "after": str(self._input(job, job.after)),
        } | {
            name: getattr(job, name)
            for name in ("before_name", "after_name", "model", "register", "bands", "scale")
        }
        ready = (self._worker is not None and self._worker.alive) or self._begin_worker()
        if job.id in self._cancelled:
            self._cancel(job.id)
            return
        if self._stopping:
            return
        if not ready or self._worker is None:
            raise AdaDINOError("the process that computes does not start; see the server's log.")
        self._worker.send(**task)
        for event in self._worker.events():
            if event["event"] == "progress":
                del event["event"], event["job"]
                self._progress[job.id] = event
            elif event["event"] == "view":
                self._change(job.id, view=event["view"])
            elif event["event"] == "done":
                if not self._finish(job.id):
                    raise AdaDINOError("its result cannot be read again; start it once more.")
                return
            elif event["event"] == "failed":
                self._change(job.id, state="failed", error=event["error"], ended=time.time())
                return
        self._lost(job)

    def _lost(self, job: Job) -> None:
        """The worker is gone: it was told to, or it died."""
        assert self._worker is not None
        code = self._worker.end()
        if job.id in self._cancelled:
            self._cancel(job.id)
        elif not self._stopping:
            self.crashes += 1
            how = f"was killed (signal {-code})" if code < 0 else f"ended with code {code}"
            text = f"the process that computed it {how}; is the memory full? Try a smaller scene."
            self._change(job.id, state="failed", error=text, ended=time.time())

    def _input(self, job: Job, name: str) -> Path:
        if job.source != "data":
            return self.store.path(job.id) / name
        if self.settings.data is None:
            raise InputError(
                "the server no longer has the data folder this job is from; upload the files."
            )
        return find_image(self.settings.data, name)

    def _finish(self, identity: str) -> bool:
        """Take a job's result; False if there is none, or none that can be read."""
        path = self.store.path(identity) / RESULT
        try:
            facts = json.loads(path.read_text())
        except (OSError, ValueError, RecursionError):
            facts = None
        if not isinstance(facts, dict):
            path.unlink(missing_ok=True)
            return False
        self._change(identity, state="done", result=facts, ended=time.time(), error=None)
        return True

    def _cancel(self, identity: str) -> Job:
        self._cancelled.discard(identity)
        folder = self.store.path(identity)
        for path in folder.iterdir():
            if path.name != RECORD:
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        return self.store.change(identity, state="cancelled", ended=time.time(), view=None)

    def _change(self, identity: str, **changes: Any) -> None:
        with suppress(JobGoneError):  # removed in the meantime
            self.store.change(identity, **changes)

    def _waiting(self) -> list[Job]:
        return [job for job in self.store.all() if job.state == "queued"]


def _fairest(queue: list[Job], served: dict[str, float]) -> Job:
    """The oldest job of the client who waits longest for a turn."""
    return min(queue, key=lambda job: (served.get(job.client, 0.0), job.created))
