"""GeoTIFF files whose tags lie, as `predict` opens and reads them."""

from __future__ import annotations

import random
import shutil
import warnings
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from adadino.errors import AdaDINOError
from campaign.commands import SMALL, random_model
from campaign.mutate import Mutator, TagMutator
from campaign.targets import Target


class GeoTiff(Target):
    """A GeoTIFF, its tags above all, as `predict` opens and reads it."""

    name = "geotiff"
    side = 64

    def seeds(self) -> Sequence[bytes]:
        """Bytes in strips, 16 bits in tiles with nodata, floats, a palette."""
        import rasterio
        from rasterio.transform import from_origin

        rng, found = np.random.default_rng(0), []
        side = self.side
        kinds: list[dict[str, Any]] = [
            {"dtype": "uint8", "count": 3},
            {"dtype": "uint16", "count": 4, "nodata": 0, "tiled": True, "blockxsize": 32,
             "blockysize": 32, "compress": "deflate"},
            {"dtype": "float32", "count": 1, "compress": "lzw", "predictor": 3},
        ]  # fmt: skip
        for kind in kinds:
            path = self.folder / "seed.tif"
            profile = {
                "driver": "GTiff", "width": side, "height": side, "crs": "EPSG:32633",
                "transform": from_origin(500_000, 5_000_000, 0.5, 0.5), **kind,
            }  # fmt: skip
            with rasterio.open(path, "w", **profile) as raster:
                values = rng.integers(1, 255, (kind["count"], side, side))
                raster.write(values.astype(kind["dtype"]))
                raster.update_tags(TIFFTAG_DATETIME="2024:05:31 10:15:00", note="x")
            found.append(path.read_bytes())
            # The other date: the same place, other values.
            with rasterio.open(path, "r+") as raster:
                raster.write(values[:, ::-1].astype(kind["dtype"]))
            (self.folder / f"good-{kind['dtype']}.tif").write_bytes(path.read_bytes())
        (self.folder / "good.tif").write_bytes(found[0])
        self.model = random_model(SMALL)
        return found

    def inputs(self, seed: int) -> Any:
        """Most are in order but for their tags; some are changed anywhere."""
        seeds, rng = self.seeds(), random.Random(f"{seed} geotiff")
        ways: list[Any] = [TagMutator(seeds, f"{seed} tags"), Mutator(seeds, f"{seed} anywhere")]
        return lambda: rng.choices(ways, (3, 1))[0]()

    def take(self, data: bytes) -> None:
        """Open and read the file as either date; one in eight goes through the whole prediction."""
        import rasterio
        from rasterio.windows import Window

        from adadino.scene import SceneOptions
        from adadino.scene.pair import check_different, open_dates

        path = self._file("bad.tif", data)
        pair = [path, self._other(path)]
        before, after = pair if len(data) % 2 else pair[::-1]
        options = SceneOptions(tile=64, overlap=16, readers=1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if zlib.crc32(data) % 8 == 0:
                self._predict(before, after, options)
                return
            check_different(before, after)
            with rasterio.Env(), open_dates(before, after, options) as dates:
                grid = dates.reader.grid
                for row in range(0, min(grid.height, 2 * self.side), self.side):
                    rows = min(self.side, grid.height - row)
                    dates.reader.read(Window(0, row, min(self.side, grid.width), rows))

    def _other(self, path: Path) -> Path:
        """The good date of the same kind of values, so that more than the kinds are compared."""
        import rasterio

        try:
            with rasterio.open(path) as raster:
                good = self.folder / f"good-{raster.dtypes[0]}.tif"
        except Exception:  # then any will do
            good = self.folder / "good-uint8.tif"
        return good if good.exists() else self.folder / "good-uint16.tif"

    def _predict(self, before: Path, after: Path, options: Any) -> None:
        """A scene that is merely large takes its time and is no fault; a refusal leaves nothing."""
        import rasterio

        from adadino.scene import predict_scene

        try:
            with rasterio.open(self.folder / "bad.tif") as raster:
                if raster.width * raster.height * raster.count > 16 * self.side**2:
                    return
        except Exception:  # then predict_scene must say so
            pass
        out = self.folder / "out"
        shutil.rmtree(out, ignore_errors=True)
        try:
            predict_scene(
                before,
                after,
                self.model,
                output=out / "c.tif",
                vector=out / "v.gpkg",
                stac=out / "s.json",
                options=options,
                device="cpu",
            )
        except AdaDINOError:
            left = [p.name for p in out.rglob("*") if p.is_file()] if out.exists() else []
            if left:
                raise AssertionError(f"a refused image left {left}") from None
            raise
