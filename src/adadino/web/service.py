"""What the routes share: the jobs, their queue, the workers, and what was drawn or cut lately."""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from starlette.requests import Request

import adadino
from adadino.errors import AdaDINOError
from adadino.web.http.heavy import HeavyQueue
from adadino.web.http.identity import Identity
from adadino.web.http.metrics import Metrics
from adadino.web.http.problems import RefusedError, disk_problem
from adadino.web.http.quotas import Quotas
from adadino.web.http.schemas import JobOut
from adadino.web.jobs.demo import demo_job, make_demo, shipped_mark, unpack_demo
from adadino.web.jobs.manager import Manager
from adadino.web.jobs.process import Worker, Workers
from adadino.web.jobs.rasters import Facts, check_facts
from adadino.web.jobs.records import ENDED, Job
from adadino.web.jobs.sandbox import Reach
from adadino.web.jobs.store import HIDDEN, JobStore
from adadino.web.settings import Settings
from adadino.web.view.display import Display
from adadino.web.view.tiles import Layer, draw_tile, layer_name

TILE_BYTES = 96 * 2**20
CUTS = 12
"""Cuts that are kept: one for each position of a slider that somebody stopped at."""
PROBES, PROBES_WAITING = 2, 64
"""Uploads that are looked at, at a time and in waiting; each takes milliseconds."""


@dataclass(frozen=True, eq=False)
class Cut:
    """The polygons of a scene at a threshold, the largest first."""

    step: int
    """Pixels of the scene for one that was traced, along a row; 1 is exact."""
    valid: int
    """Pixels that were traced and hold data."""
    areas: NDArray[np.float64]
    pixels: NDArray[np.int64]
    features: list[dict[str, Any]]
    """Of the largest."""

    def as_geojson(self, display: Display, *, threshold: float, min_area: float) -> bytes:
        """GeoJSON in map coordinates, with what the page says beside it."""
        kept = int((self.areas >= min_area).sum())  # they are sorted: the first ones
        return json.dumps(
            {
                "type": "FeatureCollection",
                "features": self.features[:kept],
                "count": kept,
                "area": round(float(self.areas[:kept].sum()), 3),
                "unit": "px" if display.crs is None else "m2",
                "change_fraction": float(self.pixels[:kept].sum() / max(1, self.valid)),
                "step": self.step,
                "threshold": threshold,
                "min_area": min_area,
                "coordinates": (display.crs if display.native else None)
                or "pixels, x right, y down",
            }
        ).encode()


class Service:
    """The server's state."""

    def __init__(self, settings: Settings, fatal: Callable[[str], None] | None = None) -> None:
        self.settings = settings
        self.store = JobStore(settings.jobs)
        self.manager = Manager(settings, self.store, fatal=fatal)
        self.metrics = Metrics()
        limits = settings.limits
        self.quotas = Quotas(self.store, limits)
        self.workers = Workers({"kind": "view"})
        self.heavy = HeavyQueue(at_once=limits.heavy, waiting=limits.heavy_waiting, name="heavy")
        self._probes = HeavyQueue(at_once=PROBES, waiting=PROBES_WAITING, name="probe")
        self._lock = threading.Lock()
        self._tiles: OrderedDict[tuple[Any, ...], bytes] = OrderedDict()
        self._tile_bytes = 0
        self._cuts: OrderedDict[tuple[str, float], Cut] = OrderedDict()

    def start(self) -> None:
        """Begin to work."""
        self.manager.start()
        if self.settings.demo:
            threading.Thread(target=self._ensure_demo, daemon=True).start()
        # The first polygons should not wait for a second of imports.
        threading.Thread(target=self._warm, daemon=True).start()

    def stop(self) -> None:
        """End the work."""
        self.manager.stop()
        for queue in (self.heavy, self._probes):
            queue.close()
        self.workers.close()

    def public(self, job: Job, identity: Identity) -> JobOut:
        """A job as its client may see it."""
        return JobOut.of(
            job,
            place=self.manager.place(job.id) if job.state == "queued" else None,
            estimate_s=self.manager.estimate_s(job.model, job.pixels),
            progress=self.manager.progress(job.id) if job.state == "running" else None,
            own=job.client == identity.owner,
        )

    def display(self, job: Job) -> Display:
        """Where a job lies.

        Raises:
            RefusedError: That is not yet known.
        """
        if job.view is None:
            raise RefusedError(409, f"the job is {job.state}; there is nothing to show of it.")
        return Display.from_dict(job.view)

    def finished(self, identity: str) -> tuple[Job, Path, Display]:
        """A job that is done, its folder and where it lies.

        Raises:
            RefusedError: It is not.
        """
        job = self.store.get(identity)
        if job.state != "done":
            raise RefusedError(409, f"the job is {job.state}; its result is there when it is done.")
        return job, self.store.path(identity), self.display(job)

    def tile(self, identity: str, layer: Layer, z: int, x: int, y: int) -> bytes:
        """A tile, from memory if it was drawn lately.

        Raises:
            RefusedError: It lies outside the scene, or cannot be drawn yet.
        """
        job = self.store.get(identity)
        if layer == "probability" and job.state != "done":
            raise RefusedError(409, f"the job is {job.state}; its result is there when it is done.")
        display, key = self.display(job), (identity, layer, z, x, y)
        with self._lock:
            if key in self._tiles:
                self._tiles.move_to_end(key)
                return self._tiles[key]
        path = self.store.file(identity, layer_name(layer))
        try:
            drawn = draw_tile(path, layer, display, z, x, y)
        except (AdaDINOError, OSError):
            self.store.get(identity)  # raises if the job was removed in the meantime
            raise
        if drawn is None:
            raise RefusedError(404, "that tile lies outside the scene.")
        with self._lock:
            if key not in self._tiles:
                self._tiles[key] = drawn
                self._tile_bytes += len(drawn)
            while self._tile_bytes > TILE_BYTES:
                self._tile_bytes -= len(self._tiles.popitem(last=False)[1])
        return drawn

    async def polygons(
        self, request: Request, identity: str, *, threshold: float, min_area: float
    ) -> bytes:
        """The polygons for the screen, from memory if they were cut lately."""
        _, _, display = self.finished(identity)
        key = (identity, threshold)
        with self._lock:
            found = self._cuts.get(key)

        def read(path: Path) -> bytes:
            cut = read_cut(path)
            with self._lock:
                self._cuts[key] = cut
                while len(self._cuts) > CUTS:
                    self._cuts.popitem(last=False)
            return cut.as_geojson(display, threshold=threshold, min_area=min_area)

        if found is not None:
            return found.as_geojson(display, threshold=threshold, min_area=min_area)
        asked = {"threshold": threshold}
        answer: bytes = await self.made(request, identity, "cut", "cut.json", asked, read)
        return answer

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
            identity: The job.
            what: `cut`, `mask`, `polygons` or `picture`.
            name: What to call the file.
            options: For the writer in `view.change`.
            read: Takes the file; its folder goes afterwards, unless `read` keeps it (`Kept`).

        Raises:
            RefusedError: The job is not done, the server is busy, or the disk is full.
        """
        job, folder, _ = self.finished(identity)
        scratch = self._scratch()
        task = {
            "kind": "view", "what": what, "folder": str(folder), "view": job.view,
            "output": str(scratch / name), "options": options,
            "names": {f"{scratch}/": "", f"{folder}/": ""},
        }  # fmt: skip
        limits = self.settings.limits
        reach = Reach(
            read=(folder,), write=(scratch,), memory=limits.heavy_memory, seconds=limits.heavy_s
        )

        def finish(worker: Worker) -> Any:
            worker.result(seconds=limits.heavy_s, memory=limits.heavy_memory)
            return read(scratch / name)

        kept = False
        try:
            answer = await self.heavy.run(request, lambda: self.workers.start(task, reach), finish)
            kept = isinstance(answer, Kept)
            return answer
        except AdaDINOError as error:
            self.store.get(identity)  # raises if the job was removed in the meantime
            raise _as_refusal(error) from error
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
        check_facts(facts, name, self.settings.limits)
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
            return output.read_bytes()
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    async def _asked(
        self, request: Request, task: dict[str, Any], reach: Reach, *, watch: bool = True
    ) -> dict[str, Any]:
        limits = self.settings.limits
        bounded = Reach(
            read=reach.read, write=reach.write, memory=limits.heavy_memory, seconds=limits.heavy_s
        )
        try:
            return await self._probes.run(
                request,
                lambda: self.workers.start(task, bounded),
                lambda worker: worker.result(seconds=limits.heavy_s, memory=limits.heavy_memory),
                watch=watch,
            )
        except AdaDINOError as error:
            raise _as_refusal(error) from error

    def _scratch(self) -> Path:
        try:
            return Path(tempfile.mkdtemp(prefix=f"{HIDDEN}file-", dir=self.settings.jobs))
        except OSError as error:
            raise disk_problem(error) from error

    def _warm(self) -> None:
        with suppress(AdaDINOError):  # whoever needs it is told
            self.workers.wait()

    def _ensure_demo(self) -> None:
        """One demo, of the first model; seen at once, and computed if its result is not shipped."""
        first = self.settings.models[0]
        shipped = shipped_mark(first.source)
        mark = f"{adadino.__version__} {first.source} {shipped or _changed(first.source)}"
        for job in self.store.all():
            if job.source == "demo":
                broken = job.state in ENDED and job.state != "done"
                if job.mark == mark and job.model == first.name and not broken:
                    return
                self.store.remove(job.id)
        identity, draft = self.store.draft()
        display, result = unpack_demo(draft) if shipped else (make_demo(draft), None)
        self.store.add(demo_job(identity, first.name, mark, display, result), draft)
        self.manager.wake()


@dataclass(frozen=True)
class Kept:
    """A file whose folder stays until it was sent."""

    path: Path


def read_cut(path: Path) -> Cut:
    """Read what `view.change.write_cut` wrote."""
    found = json.loads(path.read_bytes())
    return Cut(
        step=found["step"],
        valid=found["valid"],
        areas=np.array(found["areas"], np.float64),
        pixels=np.array(found["pixels"], np.int64),
        features=found["features"],
    )


def _as_refusal(error: AdaDINOError) -> Exception:
    """What a worker says of the disk is a matter of the server, not of the file."""
    return disk_problem(error) if type(error).__name__ == "WriteError" else error


def _changed(source: str) -> float:
    """When a checkpoint was written; 0 where only a name is known."""
    path = Path(source)
    with suppress(OSError):
        return (path / "model.safetensors" if path.is_dir() else path).stat().st_mtime
    return 0.0
