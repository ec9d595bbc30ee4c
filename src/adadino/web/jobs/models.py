"""Which model a job uses: one of the server's own, or one that another job has made.

A model that a job made lies in that job's folder, and goes with it. Only who asked for that job
finds it among the models; names are told apart for each client alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from adadino.errors import InputError
from adadino.web.jobs.records import Job
from adadino.web.jobs.store import JobGoneError, JobStore
from adadino.web.settings import ModelChoice

JUDGED, MODEL = "judged", "model"
"""In the folder of an adaptation: the review as it was when somebody asked, and the new model."""
Owns = Callable[[str], bool]
"""Whether the one who asks is a client."""


class Chosen(NamedTuple):
    """A model by its name, and the job that made it; "" for the server's own."""

    name: str
    made_by: str = ""


class Models:
    """Finds models by the names that people know them by."""

    def __init__(self, choices: tuple[ModelChoice, ...], store: JobStore) -> None:
        self._served, self._store = {choice.name: choice.source for choice in choices}, store
        self.naming = threading.Lock()
        """Held while a new name is looked up and taken."""

    def all(self, owns: Owns) -> list[Chosen]:
        """The server's own, and those of the one who asks, the newest last."""
        made = [Chosen(job.makes, job.id) for job in self._makers(owns) if _has_made(job)]
        return [*map(Chosen, self._served), *reversed(made)]

    def find(self, name: str | None, owns: Owns) -> Chosen:
        """A model by its name; the server's first without one.

        Raises:
            InputError: There is none.
        """
        known = self.all(owns)
        if not name:
            return known[0]
        found = next((one for one in known if one.name == name), None)
        if found is None:
            names = ", ".join(one.name for one in known)
            raise InputError(f"there is no model {name[:100]!r} here; choose {names}.")
        return found

    def is_taken(self, name: str, owns: Owns) -> bool:
        """Whether the one who asks has, or is about to make, a model of that name."""
        coming = [job.makes for job in self._makers(owns) if job.state in ("queued", "running")]
        names = [*coming, *(one.name for one in self.all(owns))]
        return name.casefold() in {one.casefold() for one in names}

    def weights(self, job: Job) -> Path | None:
        """The folder of the model that a job was given by another; None for the server's own.

        Raises:
            InputError: That job is gone, and its model with it.
        """
        if not job.model_of:
            return None
        try:
            if _has_made(self._store.get(job.model_of)):
                return self._store.path(job.model_of) / MODEL
        except JobGoneError:
            pass
        raise InputError(f"the model {job.model} was removed with its job; choose another model.")

    def source(self, job: Job) -> str | None:
        """What `adadino.load` takes for a served model; None if the server has it no more."""
        return self._served.get(job.model)

    def by_root(self, job: Job) -> Job:
        """A job with the served model that its own was made from: that one's speed is known."""
        asked = job
        for _ in range(100):  # a record may name itself
            if not job.model_of:
                break
            try:
                job = self._store.get(job.model_of)
            except JobGoneError:
                break
        return asked.having(model=job.model)

    def _makers(self, owns: Owns) -> list[Job]:
        return [job for job in self._store.all() if job.makes and owns(job.client)]


def _has_made(job: Job) -> bool:
    """Whether a job's model is there: only one that is better was kept."""
    figures = (job.result or {}).get("adapted") or {}
    return bool(job.makes) and job.state == "done" and figures.get("kept") == "new"
