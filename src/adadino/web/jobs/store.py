"""The folder of jobs: one folder each, found only by its id, removed when its days are over."""

from __future__ import annotations

import logging
import re
import secrets
import shutil
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from adadino.errors import AdaDINOError, WriteError
from adadino.files import sweep
from adadino.web.jobs.records import ENDED, RECORD, Job, read_record, write_record

_log = logging.getLogger(__name__)
_ID = re.compile(r"[A-Za-z0-9_-]{22}\Z")
HIDDEN = ".incoming-"
"""How the folder of an upload begins that is not yet a job."""


class JobGoneError(AdaDINOError):
    """There is no such job, or no more."""


class JobStore:
    """All jobs, in memory and on disk; safe for threads."""

    def __init__(self, folder: Path) -> None:
        """Read what an earlier server left; half-sent uploads go."""
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)  # uploads are nobody else's business
        self._lock = threading.RLock()
        self._jobs: dict[str, Job] = {}
        for path in folder.iterdir():
            if path.name.startswith(HIDDEN):
                shutil.rmtree(path, ignore_errors=True)
            elif _ID.match(path.name) and not path.is_symlink():
                job = read_record(path)
                if job is not None:
                    sweep(path / RECORD)  # a server that was killed while it wrote
                    self._jobs[job.id] = job
        self._sizes = {name: folder_size(self.path(name)) for name in self._jobs}

    def draft(self) -> tuple[str, Path]:
        """A new id, and a hidden folder for what comes in until the job is added."""
        identity = secrets.token_urlsafe(16)
        folder = self.folder / f"{HIDDEN}{identity}"
        folder.mkdir(mode=0o700)
        return identity, folder

    def add(self, job: Job, draft: Path) -> Job:
        """Make a job of a draft's folder."""
        with self._lock:
            write_record(draft, job)
            draft.rename(self.path(job.id))
            self._jobs[job.id] = job
            self._sizes[job.id] = folder_size(self.path(job.id))
        return job

    def path(self, identity: str) -> Path:
        """The folder of a job."""
        if not _ID.match(identity):
            raise JobGoneError("there is no such job; it may have been removed.")
        return self.folder / identity

    def get(self, identity: str) -> Job:
        """A job by its id.

        Raises:
            JobGoneError: There is none.
        """
        with self._lock:
            try:
                return self._jobs[identity]
            except KeyError:
                raise JobGoneError("there is no such job; it may have been removed.") from None

    def change(self, identity: str, **changes: Any) -> Job:
        """Change a job, in memory and on disk.

        On a full disk in memory alone: the queue must go on, and a job that the next server finds
        unfinished is taken up again.
        """
        with self._lock:
            job = self.get(identity).having(**changes)
            self._jobs[identity] = job
            try:
                write_record(self.path(identity), job)
            except WriteError as error:
                _log.warning("the record of a job cannot be written: %s", error)
            if job.state in ENDED:
                self._sizes[identity] = folder_size(self.path(identity))
            return job

    def total_bytes(self) -> int:
        """What all jobs take on the disk; of those that run, what they had when they came."""
        with self._lock:
            return sum(self._sizes.values())

    def file(self, identity: str, name: str) -> Path:
        """A file of a job that is a plain file: no link that leads elsewhere.

        Raises:
            JobGoneError: It is not there.
        """
        path = self.path(identity) / name
        try:
            plain = stat.S_ISREG(path.lstat().st_mode)
        except OSError:
            plain = False
        if not plain:
            raise JobGoneError("there is no such file; the job may have been removed.")
        return path

    def all(self) -> list[Job]:
        """All jobs, the newest first."""
        with self._lock:
            return sorted(self._jobs.values(), key=lambda job: -job.created)

    def remove(self, identity: str) -> None:
        """Forget a job and delete its files."""
        with self._lock:
            self.get(identity)
            del self._jobs[identity]
            self._sizes.pop(identity, None)
            # Out of the way in one step: a reader finds all of it or nothing.
            gone = self.folder / f"{HIDDEN}{secrets.token_urlsafe(8)}"
            self.path(identity).rename(gone)
        shutil.rmtree(gone, ignore_errors=True)

    def expire(self, *, days: float, now: float | None = None) -> list[str]:
        """Remove ended jobs that are too old.

        The demo stays, and so does what is waiting or running. Nothing goes before its days are
        over: when the disk is full, uploads are refused instead.

        Returns:
            The ids that went.
        """
        now = time.time() if now is None else now
        gone: list[str] = []
        for job in reversed(self.all()):
            old = now - (job.ended or job.created) > days * 86400
            if old and job.state in ENDED and job.source != "demo":
                self.remove(job.id)
                gone.append(job.id)
        return gone


def folder_size(folder: Path) -> int:
    """Bytes of all files."""

    def sizes() -> Iterator[int]:
        for path in folder.rglob("*"):
            try:
                yield path.lstat().st_size
            except OSError:  # gone in the meantime
                continue

    return sum(sizes())
