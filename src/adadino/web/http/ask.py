"""Ask a worker for something a request needs: a look at an upload, a picture, a file of a job."""

from __future__ import annotations

import shutil
import stat
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.requests import Request

from adadino.errors import AdaDINOError, WriteError
from adadino.web.http.heavy import HeavyQueue
from adadino.web.http.problems import disk_problem
from adadino.web.jobs.process import Workers
from adadino.web.jobs.rasters import Facts, check_facts
from adadino.web.jobs.sandbox import Reach
from adadino.web.jobs.store import HIDDEN, JobStore
from adadino.web.jobs.worker import Worker
from adadino.web.settings import Limits

PROBES, PROBES_WAITING, PROBE_S = 2, 64, 30.0
"""Uploads that are looked at: at a time, in waiting, and how long at most; most take a moment."""
PARSED, CUT_BYTES = ("cut.json", "features.geojson"), 2**28
"""What the server reads itself of a worker's answers, and the most bytes of it."""


@dataclass(frozen=True)
class Kept:
    """A file whose folder stays until it was sent."""

    path: Path


class Asking:
    """Starts workers for requests, through two queues: one for looks, one for what takes long."""

    def __init__(self, store: JobStore, limits: Limits) -> None:
        self._store, self._limits = store, limits
        self.workers = Workers({"kind": "view"})
        self.heavy = HeavyQueue(at_once=limits.heavy, waiting=limits.heavy_waiting, name="heavy")
        self._probes = HeavyQueue(at_once=PROBES, waiting=PROBES_WAITING, name="probe")

    def close(self) -> None:
        """End all of them."""
        for queue in (self.heavy, self._probes):
            queue.close()
        self.workers.close()

    async def made(
        self,
        request: Request,
        identity: str,
        what: str,
        name: str,
        options: dict[str, Any],
        read: Callable[[Path], Any],
    ) -> Any:
        """Have a worker make a file of a finished job, and read it.

        Args:
            request: Who asks.
            identity: A job that is done.
            what: `cut`, `mask`, `polygons` or `picture`.
            name: What to call the file.
            options: For the writer in `view.change`.
            read: Takes the file; its folder goes afterwards, unless `read` keeps it (`Kept`).

        Raises:
            RefusedError: The server is busy, or the disk is full.
        """
        job, folder = self._store.get(identity), self._store.path(identity)
        scratch = self._scratch()
        task = {
            "kind": "view", "what": what, "folder": str(folder), "view": job.view,
            "output": str(scratch / name), "options": options,
            "names": {f"{scratch}/": "", f"{folder}/": ""},
        }  # fmt: skip
        limits = self._limits
        reach = Reach(
            read=(folder,), write=(scratch,), memory=limits.heavy_memory, seconds=limits.heavy_s
        )

        def finish(worker: Worker) -> Any:
            worker.result(seconds=limits.heavy_s, memory=limits.heavy_memory)
            return read(_plain(scratch / name))

        kept = False
        try:
            answer = await self.heavy.run(request, lambda: self.workers.start(task, reach), finish)
            kept = isinstance(answer, Kept)
            return answer
        except AdaDINOError as error:
            self._store.get(identity)  # raises if the job was removed in the meantime
            raise _as_refusal(error) from error
        except OSError as error:
            self._store.get(identity)
            raise disk_problem(error) from error
        finally:
            if not kept:
                shutil.rmtree(scratch, ignore_errors=True)

    async def probe(self, request: Request, path: Path, name: str, *, watch: bool = True) -> Facts:
        """What a stranger's file says of itself, asked in a worker that sees no other.

        Args:
            request: Who asks.
            path: The file.
            name: What to call it.
            watch: As in `HeavyQueue.run`.

        Raises:
            InputError: It is no image we take, or too large.
        """
        task = {"kind": "probe", "path": str(path), "name": name, "names": {str(path): name}}
        answer = await self._asked(request, task, Reach(read=(path,)), watch=watch)
        facts = Facts(**answer["facts"])
        check_facts(facts, name, self._limits)
        return facts

    async def preview(self, request: Request, path: Path, name: str) -> bytes:
        """A small picture of an image of the data folder, as PNG."""
        scratch = self._scratch()
        output = scratch / "preview.png"
        task = {
            "kind": "preview", "path": str(path), "name": name, "output": str(output),
            "names": {str(path): name},
        }  # fmt: skip
        try:
            await self._asked(request, task, Reach(read=(path,), write=(scratch,)))
            return _plain(output).read_bytes()
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    async def _asked(
        self, request: Request, task: dict[str, Any], reach: Reach, *, watch: bool = True
    ) -> dict[str, Any]:
        limits = self._limits
        bounded = Reach(
            read=reach.read, write=reach.write, memory=limits.heavy_memory, seconds=PROBE_S
        )
        try:
            return await self._probes.run(
                request,
                lambda: self.workers.start(task, bounded),
                lambda worker: worker.result(seconds=PROBE_S, memory=limits.heavy_memory),
                watch=watch,
            )
        except AdaDINOError as error:
            raise _as_refusal(error) from error

    def _scratch(self) -> Path:
        try:
            return Path(tempfile.mkdtemp(prefix=f"{HIDDEN}file-", dir=self._store.folder))
        except OSError as error:
            raise disk_problem(error) from error


def _plain(path: Path) -> Path:
    """A file that a worker left, if it is one: the server does not follow a link.

    Raises:
        AdaDINOError: It is something else.
    """
    found = path.lstat()
    if not stat.S_ISREG(found.st_mode) or (path.name in PARSED and found.st_size > CUT_BYTES):
        raise AdaDINOError("the answer cannot be read; ask again.")
    return path


def _as_refusal(error: AdaDINOError) -> Exception:
    """What a worker says of the disk is a matter of the server, not of the file."""
    return disk_problem(error) if isinstance(error, WriteError) else error
