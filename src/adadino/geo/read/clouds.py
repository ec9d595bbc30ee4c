"""Masks of clouds and shadows that come with an image: which of their values are to be left out.

The masks of the large archives are known by name:

- `scl`: Sentinel-2's scene classification. No data, saturated, cloud shadow, medium and high
  probability of cloud, cirrus and snow are left out: 0, 1, 3, 8, 9, 10 and 11.
- `qa60`: Sentinel-2's older mask: bit 10 opaque cloud, bit 11 cirrus.
- `qa_pixel`: Landsat Collection 2: bits 0 fill, 1 dilated cloud, 2 cirrus, 3 cloud, 4 cloud shadow,
  5 snow.

Of any other mask the user names the values, or everything but 0 is left out. A mask may have other
pixels than the images (Sentinel-2's has 20 m): the value that lies nearest counts. What a mask does
not cover is left out: nobody knows whether there is a cloud.
"""

from __future__ import annotations

import re
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import numpy as np
import rasterio
from numpy.typing import NDArray
from rasterio._err import CPLE_BaseError
from rasterio.enums import Resampling
from rasterio.errors import NotGeoreferencedWarning, RasterioError
from rasterio.vrt import WarpedVRT
from rasterio.windows import Window

from adadino.errors import ConfigError, InputError
from adadino.geo.grid import Grid, bounds_text, crs_name
from adadino.geo.read.source import OpenFile
from adadino.geo.read.stretch import all_windows

Values = NDArray[Any]
Excluded = NDArray[np.bool_]


def _bits(*bits: int) -> Callable[[Values], Excluded]:
    flags = sum(1 << bit for bit in bits)
    return lambda values: (values.astype(np.int64) & flags) != 0


@dataclass(frozen=True)
class Rule:
    """Which values of a mask are left out."""

    name: str
    excludes: Callable[[Values], Excluded]
    knows: Callable[[Values], Excluded] | None = None
    """Which values such a mask can hold; None if any."""


RULES = {
    "scl": Rule(
        "scl",
        lambda values: np.isin(values, (0, 1, 3, 8, 9, 10, 11)),
        lambda values: (values >= 0) & (values <= 11),
    ),
    "qa60": Rule("qa60", _bits(10, 11), lambda values: np.isin(values, (0, 1024, 2048, 3072))),
    "qa_pixel": Rule(
        "qa_pixel", _bits(0, 1, 2, 3, 4, 5), lambda values: (values >= 0) & (values < 1 << 16)
    ),
}
ANY = Rule("everything but 0", lambda values: values != 0)


def read_rule(text: str) -> tuple[str, Rule]:
    """The file and the rule of `FILE`, `FILE=scl` or `FILE=3,8,9`.

    A file without a rule is told by its name (`..._SCL_20m.jp2`, `..._QA_PIXEL.TIF`); of any other
    everything but 0 is left out.

    Raises:
        ConfigError: The rule is neither a known name nor a list of values.
    """
    path, equals, said = text.rpartition("=")
    if not equals:
        stem = PurePath(text).stem.lower()
        named = [
            rule for name, rule in RULES.items() if re.search(rf"(^|[_.-]){name}($|[_.-])", stem)
        ]
        return text, named[0] if named else ANY
    if said.lower() in RULES:
        return path, RULES[said.lower()]
    try:
        values = tuple(int(value) for value in said.split(","))
    except ValueError as error:
        raise ConfigError(
            f"--mask {text}: {said!r} is no rule; give {', '.join(RULES)}, or the values to leave "
            "out, as in clouds.tif=3,8,9."
        ) from error
    return path, Rule(said, lambda found: np.isin(found, values))


class CloudMask:
    """A mask on a scene's grid; every thread opens it for itself."""

    def __init__(
        self, path: str, rule: Rule, scene: Grid, part: Window, *, open_file: OpenFile
    ) -> None:
        """Read a mask once, to see that it covers the scene and that its values are known.

        Args:
            path: The file.
            rule: What is left out.
            scene: The grid of the whole scene.
            part: The part of the scene that is read.
            open_file: How the file is opened.

        Raises:
            InputError: It has no place in the scene, or holds values that its rule does not know.
        """
        self.path, self.rule, self.grid = path, rule, scene.part(part)
        self._scene, self._part, self._open_file = scene, part, open_file
        self._local, self._lock, self._opened = threading.local(), threading.Lock(), list[Any]()
        try:
            self._check()
        except BaseException:
            self.close()
            raise

    def _check(self) -> None:
        with self._open_file(self.path) as dataset:
            own = Grid.of(dataset)
        if (own.crs is None) != (self.grid.crs is None):
            without = f"the mask {self.path}" if own.crs is None else "the scene"
            raise InputError(
                f"{without} has no coordinate system, so the mask has no place in the scene; assign"
                " one (gdal_edit.py -a_srs)."
            )
        if own.crs is None and own.shape != self._scene.shape:
            raise InputError(
                f"the mask {self.path} is {own.width} x {own.height} pixels and the scene "
                f"{self._scene.width} x {self._scene.height}, and neither has a coordinate system "
                "to lay one on the other; give a mask of the scene's size."
            )
        left_out = covered = 0
        for window in all_windows(self.grid.width, self.grid.height):
            values, there = self._read(window)
            self._check_values(values, there)
            covered += int(there.sum())
            left_out += int((self.rule.excludes(values) | ~there).sum())
        if not covered:
            raise InputError(
                f"the mask {self.path} lies elsewhere: it covers {bounds_text(own.bounds)} in "
                f"{crs_name(own.crs)}, and the scene {bounds_text(self.grid.bounds)} in "
                f"{crs_name(self.grid.crs)}; give the mask of this place."
            )
        pixels = self.grid.width * self.grid.height
        self.share, self.covered = left_out / pixels, covered / pixels

    def _check_values(self, values: Values, there: Excluded) -> None:
        strange = there & ~self.rule.knows(values) if self.rule.knows else np.zeros(0, bool)
        if strange.any():
            raise InputError(
                f"the mask {self.path} holds {values[strange][0]}, which {self.rule.name} does not "
                "know; is it another mask? Name the values to leave out: "
                f"--mask {self.path}=3,8,9."
            )

    @property
    def text(self) -> str:
        """The file and its rule, for people and tags."""
        return f"{PurePath(self.path).name} ({self.rule.name})"

    def excluded(self, window: Window) -> Excluded:
        """Which pixels (h, w) of the scene are left out.

        Raises:
            InputError: The file is damaged there.
        """
        values, covered = self._read(window)
        return self.rule.excludes(values) | ~covered

    def close(self) -> None:
        """Close the files of every thread."""
        with self._lock:
            while self._opened:
                self._opened.pop().close()

    def _read(self, window: Window) -> tuple[Values, Excluded]:
        """Values, and where there are any."""
        try:
            with rasterio.Env():
                raster = self._raster()
                if self.grid.crs is not None:
                    return raster.read(1, window=window), raster.read(
                        raster.count, window=window
                    ) > 0
                # In pixels the file is the whole scene.
                column, row = (
                    window.col_off + self._part.col_off,
                    window.row_off + self._part.row_off,
                )
                values = raster.read(1, window=Window(column, row, window.width, window.height))
                return values, np.ones(values.shape, bool)
        except (RasterioError, CPLE_BaseError, OSError) as error:
            raise InputError(
                f"cannot read the mask {self.path} at row {window.row_off}, column "
                f"{window.col_off}: it is truncated or damaged; copy or download it again."
            ) from error

    def _raster(self) -> Any:
        if not hasattr(self._local, "raster"):
            dataset = self._open_file(self.path)
            raster = dataset
            if self.grid.crs is not None:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", NotGeoreferencedWarning)
                    raster = WarpedVRT(
                        dataset,
                        crs=self.grid.crs,
                        transform=self.grid.transform,
                        width=self.grid.width,
                        height=self.grid.height,
                        resampling=Resampling.nearest,
                        add_alpha=True,
                        src_nodata=None,
                        tolerance=0.001,
                    )
            with self._lock:
                self._opened += [dataset, raster]
            self._local.raster = raster
        return self._local.raster
