"""The application with its real workers and the smallest model: send a pair, ask for everything."""

from __future__ import annotations

import asyncio
import io
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from campaign.asgi import Answer, ask, form
from campaign.lures import Watch

PATIENCE_S = 120.0
RESULTS = ("polygons?threshold=0.5", "mask.tif", "probability.tif", "result.gpkg", "result.geojson",
           "overview.png")  # fmt: skip


class Served:
    """A running server without a network."""

    def __init__(self, folder: Path, watch: Watch) -> None:
        """Start it and wait until its model is measured."""
        from adadino import checkpoint
        from adadino.web.app import create_app
        from adadino.web.settings import ModelChoice, Settings
        from campaign.commands import SMALL, random_model

        self.watch, self.state = watch, ""
        model = checkpoint.save(random_model(SMALL), folder / "model", with_backbone=True)
        settings = Settings(
            folder / "jobs", models=(ModelChoice("small", str(model)),), device="cpu", demo=False
        )
        self.app: Any = create_app(settings)
        self.service = self.app.state.service
        self.service.start()
        self.loop = asyncio.new_event_loop()
        self._wait(lambda: self.service.manager.ready is not None)

    def send(self, image: bytes, other: bytes, size: tuple[int, int], *, whole: bool) -> None:
        """Upload an image and its partner; `state` then says how it ended.

        Args:
            image: A file.
            other: The other date.
            size: What the scene must have, in pixels.
            whole: Whether to wait for the job; it is removed at once otherwise.

        Raises:
            AssertionError: An answer is no refusal in words, or holds what is not the image's.
        """
        pair = (image, other) if len(image) % 2 else (other, image)
        kind, _, body = form(*pair, ()).partition(b"\n")
        made = self._ask("POST", "/api/jobs", body, ("content-type", kind.decode()))
        self.state = "refused"
        if made.status != 201:
            return
        job = json.loads(made.body)["id"]
        store = self.service.store
        if not whole:
            self.state = "probed"
            self.service.manager.remove(job)
            return
        self._wait(lambda: store.get(job).state not in ("queued", "running"))
        found = store.get(job)
        self.state = found.state
        for layer in ("before", "after", "probability"):
            self._tile(f"/api/jobs/{job}/tiles/{layer}/0/0/0.png", layer)
        for name in RESULTS:
            answer = self._ask("GET", f"/api/jobs/{job}/{name}")
            if self.watch.holds_secret(answer.body):
                raise AssertionError(f"{name} holds words of the machine")
        if found.state == "done" and (found.view["width"], found.view["height"]) != size:
            raise AssertionError(f"a scene of {found.view['width']} pixels came of {size}")
        if found.state == "failed" and "unexpected" in (found.error or ""):
            raise AssertionError(f"a job failed: {found.error}")
        store.remove(job)

    def close(self) -> None:
        """End it."""
        self.service.stop()
        self.loop.close()

    def _tile(self, path: str, layer: str) -> None:
        from PIL import Image

        answer = self._ask("GET", path)
        if answer.status == 200 and layer != "probability":
            pixels = np.asarray(Image.open(io.BytesIO(answer.body)).convert("RGBA"))
            problem = self.watch.leaked(pixels[..., :3])
            if problem is not None:
                raise AssertionError(f"a tile: {problem}")

    def _ask(self, method: str, path: str, body: bytes = b"", *more: tuple[str, str]) -> Answer:
        headers = [("host", "localhost"), *more]
        answer = self.loop.run_until_complete(ask(self.app, method, path, headers, body))
        if answer.status >= 500:
            raise AssertionError(f"{path} answered {answer.status}: {answer.body[:200]!r}")
        if answer.status >= 400 and not json.loads(answer.body)["error"]:
            raise AssertionError(f"{path} answered {answer.status} without a word")
        return answer

    def _wait(self, happened: Any) -> None:
        until = time.monotonic() + PATIENCE_S
        while not happened():
            if time.monotonic() > until:
                raise AssertionError("nothing happened")
            time.sleep(0.005)
