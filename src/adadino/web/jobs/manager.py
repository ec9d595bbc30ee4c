"""Who is next: one job at a time, clients in turns, a worker for each.

- A job that was running when the server died is taken up again: `predict_scene` goes on from the
  rows that are on disk, `adapt` from the features and folds.
- A job that takes its worker down, or more time or memory than it may, is marked failed.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from adadino.errors import AdaDINOError, InputError
from adadino.web.jobs.estimates import Estimates, Ready, Speed
from adadino.web.jobs.library import find_image
from adadino.web.jobs.models import JUDGED, MODEL, Models
from adadino.web.jobs.process import Workers
from adadino.web.jobs.records import RECORD, RESULT, Found, Job, check_view
from adadino.web.jobs.reviews import FOLDER as REVIEW
from adadino.web.jobs.reviews import discard
from adadino.web.jobs.sandbox import Reach, has_gpu
from adadino.web.jobs.store import JobGoneError, JobStore
from adadino.web.jobs.worker import OverLimitError, Worker, WorkerEndedError
from adadino.web.settings import Settings

MOST_ATTEMPTS = 3
RESULT_BYTES = 2**20
CHOSEN = ("register", "any_resolution", "bands", "scale")
"""What a job may choose of `SceneOptions`."""
SWEEP_S = 600.0
"""How often old jobs are looked for."""


MEASURE_S = 600.0
"""How long a model may take to be measured; on a GPU it is compiled first."""


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
        self.estimates = Estimates(settings.limits.job_s)
        self.models = Models(settings.models, store)
        self.crashes = 0
        self.served: dict[str, float] = {}
        """When each client had its last turn."""
        self._fatal = fatal
        self._progress: dict[str, dict[str, Any]] = {}
        self._cancelled: set[str] = set()
        self._running: str | None = None
        self._worker: Worker | None = None
        models = [[choice.name, choice.source] for choice in settings.models]
        self._workers = Workers(
            {
                "kind": "model",
                "models": models,
                "backbone": settings.backbone,
                "device": settings.device,
                "engine": settings.engine,
                "adapt": asdict(settings.adapt),
            }
        )
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
            self._wake.notify_all()
        self._workers.close()
        if self._thread.is_alive():
            self._thread.join(timeout=10)

    def wake(self) -> None:
        """There is a new job."""
        with self._wake:
            self._wake.notify_all()

    @property
    def ready(self) -> Ready | None:
        """What workers said of themselves, once the models are loaded."""
        return self.estimates.ready

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
            served[_turn(job)] = time.time() + place
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
        """Remove jobs that are too old."""
        return self.store.expire(days=self.settings.limits.keep_days)

    def _take_up(self, job: Job) -> None:
        if self._finish(job.id):
            return
        if job.attempts >= MOST_ATTEMPTS:
            text = f"the server ended {job.attempts} times while it ran; start it again."
            self._change(job.id, state="failed", error=text, ended=time.time())
        else:
            self._change(job.id, state="queued")

    def _loop(self) -> None:
        self._get_ready()
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
                self.served[_turn(job)] = time.time()
                self._running = job.id
                self._change(
                    job.id, state="running", started=time.time(), attempts=job.attempts + 1
                )
            try:
                self._run(job)
            except AdaDINOError as error:
                self._fail(job, error)
            except Exception as error:  # a full disk, say: the queue must go on
                self._change(job.id, state="failed", error=f"{error}", ended=time.time())
            finally:
                self._progress.pop(job.id, None)
                with self._wake:
                    self._running = self._worker = None
                    self._wake.notify_all()
            self.sweep()

    def _get_ready(self) -> None:
        """Have the models loaded and measured."""
        speeds: dict[str, Speed] = {}
        about: dict[str, Any] = {}
        try:
            for choice in reversed(self.settings.models):
                task = {"kind": "measure", "model": choice.name}
                worker = self._workers.start(task, self._reach(None))
                about = worker.result(seconds=MEASURE_S)
                speeds[choice.name] = Speed(about["mp_per_s"], about["overhead_s"])
        except AdaDINOError as error:
            if self._fatal is not None and not self._stopping:
                self._fatal(str(error))
            self._stopping = True
            return
        self.estimates.ready = Ready(about["device"], about["device_name"], speeds)

    def _reach(self, job: Job | None) -> Reach:
        """What a worker may touch: a job's files, and models that are read again for each."""
        limits, settings = self.settings.limits, self.settings
        named = [choice.source for choice in settings.models] + [settings.backbone or ""]
        models = [Path(source).resolve() for source in named if source and Path(source).exists()]
        given: list[Path] = []
        if job is not None:
            given = [self._input(job, name) for name in (job.before, job.after)]
            weights = self.models.weights(job)
            given += [] if weights is None else [weights]
        return Reach(
            read=(*models, *given),
            write=() if job is None else (self.store.path(job.id),),
            cuda=self._uses_gpu(),
            memory=limits.job_memory,
            seconds=limits.job_s * (os.cpu_count() or 1),
        )

    def _uses_gpu(self) -> bool:
        """Whether workers need a GPU's devices; one that computes on the CPU does not see them."""
        if self.ready is not None:
            return self.ready.device == "cuda"
        device = self.settings.device
        return has_gpu() if device == "auto" else device.startswith("cuda")

    def _run(self, job: Job) -> None:
        """Give a job to a worker and follow it to its end."""
        self.estimates.check(self.models.by_root(job))
        reach, limits, task = self._reach(job), self.settings.limits, self._task(job)
        if job.id in self._cancelled:
            self._cancel(job.id)
            return
        if self._stopping:
            return
        started = time.monotonic()
        worker = self._worker = self._workers.start(task, reach)
        if job.id in self._cancelled:  # asked for while the worker began
            worker.kill()
        for event in worker.events(seconds=limits.job_s, memory=limits.job_memory):
            if event["event"] == "progress":
                self._progress[job.id] = {k: v for k, v in event.items() if k != "event"}
            elif event["event"] == "view":
                self._show(job, event["view"])
            elif event["event"] == "failed":
                self._change(job.id, state="failed", error=event["error"], ended=time.time())
            elif event["event"] == "done":
                if not self._finish(job.id):
                    raise AdaDINOError("its result cannot be read again; start it once more.")
                if not job.adapts:
                    took = time.monotonic() - started
                    self.estimates.learn(self.models.by_root(job), took)

    def _task(self, job: Job) -> dict[str, Any]:
        """What a worker is told of a job."""
        before, after = (str(self._input(job, name)) for name in (job.before, job.after))
        folder, weights = str(self.store.path(job.id)), self.models.weights(job)
        task: dict[str, Any] = {
            "kind": "adapt" if job.adapts else "predict", "folder": folder, "before": before,
            "after": after, "weights": None if weights is None else str(weights),
            "source": self.models.source(job),
        }  # fmt: skip
        task |= {
            name: getattr(job, name) for name in ("before_name", "after_name", "model", *CHOSEN)
        }
        # The folder last: the inputs may lie there.
        judged = (f".{MODEL}.tiles.work", JUDGED)
        own = {f"{folder}/{name}": "the review" for name in judged}
        task["names"] = {before: job.before_name, after: job.after_name, **own, f"{folder}/": ""}
        return task

    def _show(self, job: Job, view: dict[str, Any]) -> None:
        """Keep where a scene lies; whoever says so has read a stranger's file."""
        try:
            check_view(view)
        except (ValueError, TypeError, KeyError) as error:
            raise AdaDINOError(
                "where the scene lies makes no sense; convert the images."
            ) from error
        self._change(job.id, view=view)

    def _fail(self, job: Job, error: AdaDINOError) -> None:
        """Say why a job did not end well: it was told to, it died, or it took too much."""
        if job.id in self._cancelled:
            self._cancel(job.id)
        elif not self._stopping:
            self.crashes += isinstance(error, WorkerEndedError | OverLimitError)
            self._change(job.id, state="failed", error=str(error), ended=time.time())

    def _input(self, job: Job, name: str) -> Path:
        if job.source != "data":
            # The name alone: a worker can write in its folder, the record of its job included.
            return self.store.path(job.id) / Path(name).name
        if self.settings.data is None:
            raise InputError(
                "the server no longer has the data folder this job is from; upload the files."
            )
        return find_image(self.settings.data, name)

    def _finish(self, identity: str) -> bool:
        """Take a job's result; False if there is none, or none that can be read."""
        path = self.store.path(identity) / RESULT
        try:
            # Longer than any result is; a worker wrote it that had read a stranger's file.
            facts = json.loads(path.read_bytes()[:RESULT_BYTES])
            Found.model_validate(facts)
        except (OSError, ValueError, RecursionError):
            path.unlink(missing_ok=True)
            return False
        discard(self.store.path(identity) / REVIEW)  # only the server begins one
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
    return min(queue, key=lambda job: (served.get(_turn(job), 0.0), job.created))


def _turn(job: Job) -> str:
    """Whose turn a job is; jobs of version 0.1 know only their owner."""
    return job.payer or job.client
