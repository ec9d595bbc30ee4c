"""What the routes share: the jobs, their queue, and what was drawn or cut lately."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from starlette.requests import Request

import adadino
from adadino.errors import AdaDINOError
from adadino.web.http.ask import Asking
from adadino.web.http.identity import Identity
from adadino.web.http.metrics import Metrics
from adadino.web.http.problems import RefusedError
from adadino.web.http.quotas import Quotas
from adadino.web.http.schemas import JobOut, ModelOut
from adadino.web.jobs.demo import demo_job, make_demo, shipped_mark, unpack_demo
from adadino.web.jobs.manager import Manager
from adadino.web.jobs.models import Chosen
from adadino.web.jobs.records import ENDED, Job
from adadino.web.jobs.reviews import Reviews
from adadino.web.jobs.store import JobStore
from adadino.web.settings import Settings
from adadino.web.view.cut import Cut, read_cut
from adadino.web.view.display import Display
from adadino.web.view.tiles import Seen, draw_tile, layer_name
from adadino.web.view.webtiles import draw_web_tile

TILE_BYTES = 96 * 2**20
CUTS = 12
"""Cuts that are kept: one for each position of the two sliders that somebody stopped at."""

FEATURES = 4
"""Lists of features that are kept, for programs that ask for them page by page."""


class Service:
    """The server's state."""

    def __init__(self, settings: Settings, fatal: Callable[[str], None] | None = None) -> None:
        self.settings = settings
        self.store = JobStore(settings.jobs)
        self.manager = Manager(settings, self.store, fatal=fatal)
        self.metrics = Metrics()
        limits = settings.limits
        self.quotas = Quotas(self.store, limits)
        self.asking = Asking(self.store, limits)
        self.reviews = Reviews(self.store)
        self._lock = threading.Lock()
        self._tiles: OrderedDict[tuple[Any, ...], bytes] = OrderedDict()
        self._tile_bytes = 0
        self._features: OrderedDict[tuple[str, float, float], list[dict[str, Any]]] = OrderedDict()
        self._cuts: OrderedDict[tuple[str, float, float], Cut] = OrderedDict()

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
        self.asking.close()

    def public(self, job: Job, identity: Identity) -> JobOut:
        """A job as its client may see it."""
        return JobOut.of(
            job,
            place=self.manager.place(job.id) if job.state == "queued" else None,
            estimate_s=self._estimate(job),
            progress=self.manager.progress(job.id) if job.state == "running" else None,
            own=identity.owns(job.client),
            reviewed=self.reviews.exists(job.id),
        )

    def model(self, chosen: Chosen) -> ModelOut:
        """A model as its client may see it."""
        job = self.store.get(chosen.made_by) if chosen.made_by else None
        root = chosen.name if job is None else self.manager.models.by_root(job).model
        speed = self.manager.estimates.speed(root)
        return ModelOut(name=chosen.name, own=job is not None, **speed)

    def _estimate(self, job: Job) -> float | None:
        """How long a job takes; an adaptation tells so itself, when it runs."""
        if job.adapts:
            return None
        return self.manager.estimates.seconds(self.manager.models.by_root(job).model, job.pixels)

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

    def tile(
        self, identity: str, layer: Seen, z: int, x: int, y: int, *, web: bool = False
    ) -> bytes:
        """A tile, from memory if it was drawn lately.

        Args:
            identity: The job.
            layer: What to draw.
            z: The level.
            x: The column.
            y: The row.
            web: Whether the tile is one of Web Mercator; else of the scene's own grid.

        Raises:
            RefusedError: It lies outside the scene, or cannot be drawn yet.
        """
        job = self.store.get(identity)
        if layer == "probability" and job.state != "done":
            raise RefusedError(409, f"the job is {job.state}; its result is there when it is done.")
        display, key = self.display(job), (identity, layer, z, x, y, web)
        if layer.endswith("-false") and not display.infrared:
            raise RefusedError(
                404, "the dates have no near infrared that was read; see them in true colour."
            )
        with self._lock:
            if key in self._tiles:
                self._tiles.move_to_end(key)
                return self._tiles[key]
        path = self.store.file(identity, layer_name(layer))
        try:
            drawn = (draw_web_tile if web else draw_tile)(path, layer, display, z, x, y)
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
        key = (identity, threshold, min_area)
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
        asked = {"threshold": threshold, "min_area": min_area}
        answer: bytes = await self.asking.made(request, identity, "cut", "cut.json", asked, read)
        return answer

    async def features(
        self, request: Request, identity: str, *, threshold: float, min_area: float
    ) -> list[dict[str, Any]]:
        """All polygons in longitude and latitude, from memory if they were made lately."""
        self.finished(identity)
        key = (identity, threshold, min_area)
        with self._lock:
            if key in self._features:
                self._features.move_to_end(key)
                return self._features[key]

        def read(path: Path) -> list[dict[str, Any]]:
            try:
                return [dict(feature) for feature in json.loads(path.read_bytes())["features"]]
            except (ValueError, TypeError, KeyError, RecursionError) as error:
                raise AdaDINOError("the polygons cannot be read; ask again.") from error

        asked = {"threshold": threshold, "min_area": min_area}
        made: list[dict[str, Any]] = await self.asking.made(
            request, identity, "polygons", "features.geojson", asked, read
        )
        with self._lock:
            self._features[key] = made
            while len(self._features) > FEATURES:
                self._features.popitem(last=False)
        return made

    def _warm(self) -> None:
        with suppress(AdaDINOError):  # whoever needs it is told
            self.asking.workers.wait()

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


def _changed(source: str) -> float:
    """When a checkpoint was written; 0 where only a name is known."""
    path = Path(source)
    with suppress(OSError):
        return (path / "model.safetensors" if path.is_dir() else path).stat().st_mtime
    return 0.0
