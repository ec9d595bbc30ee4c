"""Images that are also something else: every container with every payload, at the server's door.

- Each goes through `open_foreign` in this process, whose GDAL has every driver and is confined by
  nothing, after a warp, which registers the VRT driver. It is read in windows, small, warped, with
  its mask and its overviews, and laid out for the page.
- One in `SAMPLE` is uploaded to the application with its real workers, as one date of a pair. One
  in `WHOLE` of those is computed, and whatever can be asked of the job is asked for.
- No canary is opened, nobody calls the port, no pixel is brighter than the container's own, and an
  image that is taken has the container's size.

An input begins with a line: container, payload, width and height.
"""

from __future__ import annotations

import collections
import random
import warnings
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from adadino.errors import AdaDINOError
from adadino.web import door
from campaign.containers import CONTAINERS
from campaign.lures import Watch
from campaign.mutate import CHANGES
from campaign.payloads import PAYLOADS, make_payload
from campaign.served import Served
from campaign.targets import FIGURES, Target

SAMPLE = 20
"""One in so many is uploaded as well."""
WHOLE = 5
"""One in so many of those is computed: a job takes seconds."""
SIDES = ((64, 48), (80, 64), (33, 71), (1, 1), (160, 40))
SUFFIX = {"jpeg": ".jpg", "png": ".png", "tiff": ".tif"}


class Polyglot(Target):
    """An upload that points elsewhere."""

    name = "polyglot"
    modules = ("adadino.web.door", "adadino.web.jobs.rasters")
    served = True
    """Whether one in `SAMPLE` is uploaded."""

    def begin(self) -> None:
        """Set out the lures, and warp once."""
        import rasterio
        from rasterio.vrt import WarpedVRT

        self.open_file: Callable[..., Any] = door.open_foreign
        self.watch = Watch(self.folder / "outside")
        self.inbox = self.folder / "inbox"
        self.inbox.mkdir(exist_ok=True)
        self.good = {}
        for width, height in SIDES:
            for container in ("png-text", "tiff-software"):
                path = self.inbox / f"good-{container[:4]}-{width}-{height}"
                rng = random.Random(2)  # one that places a TIFF on the ground
                path.write_bytes(CONTAINERS[container](b"good", width, height, rng))
                self.good[container[:4].rstrip("-"), width, height] = path
        with rasterio.open(self.good["tiff", 64, 48]) as dataset, WarpedVRT(dataset) as warped:
            warped.read()
        self.counts: collections.Counter[tuple[str, str]] = collections.Counter()
        self.sample = Served(self.folder / "served", self.watch) if self.served else None
        self.watch.touched()

    def close(self) -> None:
        """End the server."""
        if self.sample is not None:
            self.sample.close()

    def seeds(self) -> Sequence[bytes]:
        """Images that carry harmless words."""
        self.begin()
        rng = random.Random(0)
        return [
            f"{name} name 64 48\n".encode() + CONTAINERS[name](b"a town", 64, 48, rng)
            for name in CONTAINERS
        ]

    def inputs(self, seed: int) -> Callable[[], bytes]:
        """Every container with every payload in turn, shuffled; each time otherwise."""
        self.begin()
        rng = random.Random(f"{seed} polyglot")
        pairs: list[tuple[str, str]] = []

        def one() -> bytes:
            if not pairs:
                pairs.extend((c, p) for c in CONTAINERS for p in PAYLOADS)
                rng.shuffle(pairs)
            container, name = pairs.pop()
            width, height = rng.choice(SIDES)
            payload = bytearray(make_payload(name, self.watch.lures, rng))
            if rng.random() < 0.2:
                rng.choice(CHANGES)(payload, rng)
            data = CONTAINERS[container](bytes(payload), width, height, rng)
            if rng.random() < 0.04:
                data = data[: rng.randrange(len(data))]
            return f"{container} {name} {width} {height}\n".encode() + data

        return one

    def take(self, data: bytes) -> None:
        """Open it every way that the server does; see the module.

        Raises:
            AdaDINOError: It is refused.
            AssertionError: It reached something that is not its own.
        """
        line, _, image = data.partition(b"\n")
        container, payload, *size = line.decode().split()
        width, height = map(int, size)
        path = self.inbox / f"bad{SUFFIX[container.partition('-')[0]]}"
        path.write_bytes(image)
        outcome, self.partner = "refused", "png"
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._look(path, width, height)
            outcome = "taken"
        finally:
            self.counts[container, outcome] += 1
            self.counts[payload, outcome] += 1
            self._check_untouched()
            path.unlink()
            chance = zlib.crc32(data)
            if self.sample is not None and chance % SAMPLE == 0:
                other = self.good[self.partner, width, height].read_bytes()
                whole = chance % (SAMPLE * WHOLE) == 0
                self.sample.send(image, other, (width, height), whole=whole)
                self.counts["upload", self.sample.state] += 1
                self._check_untouched()
            self._note()

    def _look(self, path: Path, width: int, height: int) -> None:
        """Read all of an image that the server would read."""
        from affine import Affine
        from rasterio.vrt import WarpedVRT

        with self.open_file(path) as dataset:
            if dataset.shape != (height, width):
                raise AssertionError(f"{dataset.shape} is not the container's size")
            try:
                small = (dataset.count, max(1, height // 4), max(1, width // 4))
                self.partner = "png" if dataset.crs is None else "tiff"
                self._check(dataset.read(out_dtype="float32"))  # as `Source` does
                self._check(dataset.read(out_shape=small))
                dataset.overviews(1), dataset.tags(), dataset.dataset_mask()
                with WarpedVRT(
                    dataset, src_crs="EPSG:32633", crs="EPSG:32633",
                    src_transform=Affine.scale(1, -1), transform=Affine.scale(2, -2),
                    width=width, height=height,
                ) as warped:  # fmt: skip
                    self._check(warped.read())
            except Exception as error:
                if type(error).__module__.startswith("rasterio"):
                    raise AdaDINOError("it is damaged.") from error  # as `Source.read` says it
                raise
        self._compare(path, width, height)

    def _compare(self, path: Path, width: int, height: int) -> None:
        """As one date of a pair, and on the page."""
        import rasterio
        from rasterio.windows import Window

        from adadino.geo.read.raster import open_pair
        from adadino.web.view.display import lay_out

        other = self.good[self.partner, width, height]
        pair = (path, other) if width % 2 else (other, path)
        with rasterio.Env(), open_pair(*pair, open_file=self.open_file) as reader:
            window = Window(0, 0, min(64, reader.grid.width), min(48, reader.grid.height))
            seen = reader.read(window)
            for image in (seen.before, seen.after):
                self._check(image * 255)
            lay_out(reader.grid)

    def _check(self, pixels: np.ndarray) -> None:
        problem = self.watch.leaked(pixels)
        if problem is not None:
            raise AssertionError(problem)

    def _check_untouched(self) -> None:
        problem = self.watch.touched()
        if problem is not None:
            raise AssertionError(problem)

    def _note(self) -> None:
        """Keep the figures, for the report."""
        names = dict.fromkeys(name for name, _ in sorted(self.counts))
        lines = (
            f"{name}: "
            + ", ".join(f"{n} {how}" for (whose, how), n in self.counts.items() if whose == name)
            for name in names
        )
        (self.folder / FIGURES).write_text("\n".join(lines))
