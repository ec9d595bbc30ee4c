"""The server's parsers: whole requests to the API, and forms with two images.

The application is called in this process, as a web server would call it, so that a request costs
its work and no connection. Images are looked at by its real workers. Its queue does not run: a job
that is taken is removed at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from adadino.errors import AdaDINOError
from campaign.asgi import ask, form
from campaign.geotiff import GeoTiff
from campaign.mutate import Mutator
from campaign.targets import Target


class Web(Target):
    """The application and a way to ask it."""

    def begin(self) -> None:
        """Make the application, with a data folder and one job that is done."""
        from adadino.web.app import create_app
        from adadino.web.http.identity import KEY
        from adadino.web.settings import Limits, Settings

        data = self.folder / "data"
        data.mkdir(exist_ok=True)
        self.images = GeoTiff(self.folder).seeds()
        for name, image in zip(("a.tif", "b.tif"), self.images, strict=False):
            (data / name).write_bytes(image)
        limits = Limits(upload_bytes=2**20, pixels=10_000_000)
        self.app: Any = create_app(Settings(self.folder / "jobs", data=data, limits=limits))
        self.service = self.app.state.service
        self.service._ensure_demo()  # what `start` does in a thread
        (self.demo,) = (job.id for job in self.service.store.all())
        self.kept = {path.name for path in self.service.store.folder.iterdir()} | {KEY}
        self.loop = asyncio.new_event_loop()

    def close(self) -> None:
        """End its workers."""
        self.service.stop()

    def ask(
        self, method: str, target: str, headers: Sequence[tuple[str, str]], body: bytes
    ) -> None:
        """Send a request; what it refuses must be told in words and leave nothing.

        Raises:
            AdaDINOError: The sentence of a refusal.
        """
        answer = self.loop.run_until_complete(ask(self.app, method, target, headers, body))
        store = self.service.store
        left = {path.name for path in store.folder.iterdir()} - self.kept
        for job in store.all():
            if job.id in left:
                left.remove(job.id)
                store.remove(job.id)
                if answer.status != 201:
                    raise AssertionError(f"a job was made with {answer.status}")
        if left:
            raise AssertionError(f"the answer {answer.status} left {sorted(left)}")
        if answer.status >= 500:
            raise AssertionError(f"the server answered {answer.status}: {answer.body[:200]!r}")
        if answer.status >= 400 and method != "HEAD":
            raise AdaDINOError(json.loads(answer.body)["error"])


class Requests(Web):
    """Whole requests: a line, headers, an empty line, a body."""

    name = "api"
    modules = (
        "adadino.web.http.body",
        "adadino.web.http.guard",
        "adadino.web.http.intake",
        "adadino.web.http.options",
        "adadino.web.http.reviewing",
        "adadino.web.http.features",
    )

    def seeds(self) -> Sequence[bytes]:
        """Jobs on files of the server above all; every other route once."""
        self.begin()
        bodies: list[dict[str, Any]] = [
            {"before": "a.tif", "after": "b.tif"},
            {"before": "a.tif", "after": "b.tif", "model": "tiny", "bands": [1], "name": "x",
             "scale": [0, 3000.5], "register": True},
            {"before": "b.tif", "after": "a.tif", "bands": [1, 1, 1], "scale": None},
        ]  # fmt: skip
        head = b"host: localhost:8000\ncookie: adadino_client=abc\n"
        posts = [
            b"POST /api/jobs\n" + head + b"origin: http://localhost:8000\n"
            b"content-type: application/json\ncontent-length: 60\n\n" + json.dumps(body).encode()
            for body in bodies
        ]
        job = self.demo.encode()
        square = [[500010, 5799990], [500020, 5799990], [500020, 5799980], [500010, 5799990]]
        actions: list[dict[str, Any]] = [
            {"do": "judge", "shape": 1, "verdict": "right", "list": "random", "key": "a"},
            {"do": "draw", "geometry": {"type": "Polygon", "coordinates": [square]}},
            {"do": "cut", "shape": 1, "geometry": {"type": "Polygon", "coordinates": [square]}},
            {"do": "note", "shape": 1, "note": "x"}, {"do": "undo"},
        ]  # fmt: skip
        posts += [b"POST /api/jobs/" + job + b"/review\n" + head + b"content-length: 0\n\n"]
        posts += [
            b"POST /api/jobs/" + job + b"/review/actions\n" + head + b"content-length: 90\n\n"
            + json.dumps(action).encode()
            for action in actions
        ]  # fmt: skip
        others = [
            b"GET /api/jobs", b"GET /api/files", b"GET /api/info", b"DELETE /api/jobs/" + job,
            b"POST /api/jobs/" + job + b"/cancel", b"POST /login", b"GET /api/jobs/" + job,
            b"GET /api/jobs/" + job + b"/tiles/probability/1/0/1.png",
            b"GET /api/jobs/" + job + b"/polygons?threshold=0.5&min_area=10",
            b"GET /static/../app.py", b"GET /metrics", b"GET /api/jobs/" + job + b"/wmts",
            b"GET /api/jobs/" + job + b"/review", b"GET /api/jobs/" + job + b"/stac.json",
            b"GET /api/jobs/" + job + b"/xyz/after/17/71000/43000.png",
            b"GET /api/jobs/" + job + b"/features/0.5/0/collections/change/items?bbox=15,52,16,53",
        ]  # fmt: skip
        return posts * 6 + [line + b"\n" + head + b"\n" for line in others]

    def take(self, data: bytes) -> None:
        """Ask; names of headers are what a web server lets through."""
        head, _, body = data.partition(b"\n\n")
        first, *lines = head.decode("latin-1").split("\n")
        method, _, target = first.partition(" ")
        headers = []
        for line in lines:
            name, _, value = line.partition(":")
            name = "".join(c for c in name.lower() if c.isascii() and (c.isalnum() or c in "-_"))
            value = "".join(c for c in value.strip() if c >= " " and c != "\x7f")
            headers.append((name, value))
        self.ask(method or "GET", target or "/", headers, body)


class Uploads(Web):
    """A form with two images."""

    name = "upload"
    modules = ("adadino.web.http.uploads", "adadino.web.jobs.rasters", "adadino.web.http.options")

    FIELDS = (("name", b"a town"), ("model", b"tiny"), ("bands", b"1,1,1"), ("scale", b"0,3000"),
              ("register", b"true"))  # fmt: skip

    def seeds(self) -> Sequence[bytes]:
        """GeoTIFF, PNG and JPEG, with and without fields."""
        from PIL import Image

        self.begin()
        picture = Image.fromarray(np.random.default_rng(1).integers(0, 255, (40, 50, 3), np.uint8))
        self.pairs = [(self.images[0], self.images[1]), (self.images[2], self.images[0])]
        for kind in ("PNG", "JPEG"):
            file = io.BytesIO()
            picture.save(file, kind)
            self.pairs.append((file.getvalue(), file.getvalue()))
        return [form(*pair, fields) for pair in self.pairs for fields in ((), self.FIELDS)]

    def inputs(self, seed: int) -> Callable[[], bytes]:
        """A third is changed anywhere, a third in an image, a third in what is not one."""
        seeds, rng = self.seeds(), random.Random(f"{seed} upload")
        anywhere = Mutator(seeds, f"{seed} form")
        images = [Mutator(pair, f"{seed} {i} image", 700) for i, pair in enumerate(self.pairs)]
        values = [Mutator([value], f"{seed} {name}") for name, value in self.FIELDS]
        shell = Mutator([form(b"\x01", b"\x02", self.FIELDS)], f"{seed} shell")

        def one() -> bytes:
            chance = rng.random()
            if chance < 0.33:
                return anywhere()
            number = rng.randrange(len(self.pairs))
            before, after = self.pairs[number]
            if chance < 0.66:
                return form(images[number](), after, ())
            if chance < 0.83:
                given = tuple((n, v()) for (n, _), v in zip(self.FIELDS, values, strict=True))
                return form(before, after, given)
            return shell().replace(b"\x01", before).replace(b"\x02", after)

        return one

    def take(self, data: bytes) -> None:
        """Send it; the boundary may be wrong too."""
        kind, _, body = data.partition(b"\n")
        headers = [("host", "localhost"), ("content-type", kind.decode("latin-1"))]
        self.ask("POST", "/api/jobs", headers, body)


class Records(Web):
    """What an earlier server left of a job: its record and its result."""

    name = "jobs"
    modules = ("adadino.web.jobs.records", "adadino.web.jobs.store", "adadino.web.view.display")

    def seeds(self) -> Sequence[bytes]:
        """A job that is done and one that was running, a zero byte before the result."""
        self.begin()
        folder = self.service.store.path(self.demo)
        said = json.loads((folder / "job.json").read_text())
        result = json.dumps(said["result"]).encode()
        running = said | {"source": "upload", "state": "running", "result": None, "attempts": 1}
        return [json.dumps(job).encode() + b"\0" + result for job in (said, running)]

    def take(self, data: bytes) -> None:
        """Begin as a new server does, and look at all there is; what is no job is not there."""
        from adadino.web.jobs.manager import Manager
        from adadino.web.jobs.store import JobStore

        folder = self.service.store.path(self.demo)
        record, _, result = data.partition(b"\0")
        (folder / "job.json").write_bytes(record)
        (folder / "result.json").write_bytes(result)
        self.service.store = JobStore(self.service.settings.jobs)
        self.service.manager = Manager(self.service.settings, self.service.store)
        self.service._tiles.clear()
        for path in ("/api/jobs", f"/api/jobs/{self.demo}", "/metrics",
                     f"/api/jobs/{self.demo}/tiles/after/0/0/0.png",
                     f"/api/jobs/{self.demo}/probability.tif"):  # fmt: skip
            with contextlib.suppress(AdaDINOError):
                self.ask("GET", path, [("host", "localhost")], b"")


WEB: dict[str, type[Target]] = {kind.name: kind for kind in (Requests, Uploads, Records)}
