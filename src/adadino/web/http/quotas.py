"""Room in the queue and on the disk, taken before the first byte comes and given back at the end.

Checked and taken in one step: of fifty uploads that come at once, five of a client are let in.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from adadino.web.http.problems import RefusedError
from adadino.web.jobs.records import Job
from adadino.web.jobs.store import JobStore
from adadino.web.settings import Limits

SPARE_BYTES = 2**30
"""What must stay free on the disk."""
OUTPUT_BYTES = 12
"""Bytes per pixel that a job writes: rows and probability in float32, two pictures, a mask."""

ADAPT_BYTES = 2 * 2**30
"""What an adaptation keeps of features while it runs: some 10 MB for each of 128 tiles."""


@dataclass(eq=False)
class Claim:
    """What an upload holds while it comes in."""

    payer: str
    size: int


class Quotas:
    """Counts what is waiting, running and coming in."""

    def __init__(self, store: JobStore, limits: Limits) -> None:
        self._store, self._limits = store, limits
        self._lock = threading.Lock()
        self._claims: set[Claim] = set()

    @contextmanager
    def claim(self, payer: str, size: int) -> Iterator[None]:
        """Hold room for one job of a client until it is in the queue, or has been refused.

        Args:
            payer: Whose limits count.
            size: Bytes that will come.

        Raises:
            RefusedError: There is no room: too many jobs wait, or the disk is full.
        """
        claim = Claim(payer, size)
        with self._lock:
            self._check(claim)
            self._claims.add(claim)
        try:
            yield
        finally:
            with self._lock:
                self._claims.discard(claim)

    def admit(self, job: Job, draft: Path) -> None:
        """Put a job in the queue, if its results will fit the disk beside those of all others.

        Raises:
            RefusedError: They would not.
        """
        with self._lock:
            self._check_disk(_output(job))
            self._store.add(job, draft)

    def _check(self, claim: Claim) -> None:
        limits = self._limits
        waiting = [job for job in self._store.all() if job.state in ("queued", "running")]
        own = sum(job.payer == claim.payer for job in waiting)
        own += sum(other.payer == claim.payer for other in self._claims)
        every = len(waiting) + len(self._claims)
        if every >= limits.waiting or own >= limits.waiting_each:
            raise RefusedError(
                429, f"{own} of your jobs and {every} in all wait; come back later.", retry_s=30
            )
        self._check_disk(claim.size)

    def _check_disk(self, size: int) -> None:
        coming = size + sum(claim.size for claim in self._claims)
        if self._store.total_bytes() + coming > self._limits.keep_bytes:
            raise RefusedError(
                507,
                f"the server keeps {self._limits.keep_bytes / 2**30:,.0f} GB of jobs, and they are "
                "full; remove some of yours, or come back when others have expired.",
            )
        running = [job for job in self._store.all() if job.state in ("queued", "running")]
        promised = sum(map(_output, running))
        if shutil.disk_usage(self._store.folder).free < coming + promised + SPARE_BYTES:
            raise RefusedError(
                507, "the server's disk is too full for these files; come back later."
            )


def _output(job: Job) -> int:
    """Bytes that a job will write."""
    return job.pixels * OUTPUT_BYTES + (ADAPT_BYTES if job.adapts else 0)
