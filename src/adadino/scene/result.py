"""What a scene's prediction gives back: files on disk, read when they are asked for.

- A result holds paths, numbers and polygons. `mask` and `probability` are read when they are first
  asked for; `read` takes a window, or fewer pixels, where the whole scene would be too much.
- Pictures (`plot`, the overview, a notebook's cell) are drawn from decimated reads. A polygon
  smaller than a pixel of the picture is still shown, as one.
- A result may own its files: `keep` holds their temporary folder as long as the result lives.
  `save` is how they outlive it.
"""

from __future__ import annotations

import shutil
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import rasterio
from numpy.typing import NDArray
from rasterio.enums import Resampling
from rasterio.errors import RasterioError
from rasterio.features import rasterize
from rasterio.windows import Window

from adadino.domain import UNKNOWN, Fit
from adadino.errors import AdaDINOWarning, InputError, VectorWarning, WriteError
from adadino.files import WAY_OUT
from adadino.geo.grid import Grid
from adadino.geo.polygons.vector import measures
from adadino.geo.read.register import Shift
from adadino.geo.read.small import coarse_grid, read_pair
from adadino.geo.read.source import OpenFile, open_dataset
from adadino.geo.write.cog import check_target
from adadino.geo.write.layers import write_layer
from adadino.geo.write.overview import SIDE, decimated_shape, write_overview
from adadino.geo.write.qml import qml_text, write_qml

if TYPE_CHECKING:
    import geopandas as gpd

    from adadino.scene.classes import Transitions

Picture = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)  # tables do not compare to one answer
class SceneResult:
    """What was found, and where it was written."""

    grid: Grid
    change_fraction: float
    """Share of the valid pixels that changed."""
    polygons: gpd.GeoDataFrame = field(repr=False)
    shift: Shift
    registered: bool
    """Whether `after` was moved by the shift."""
    outputs: tuple[Path, ...]
    warnings: tuple[str, ...]
    mask_path: Path
    """The change mask: 0 no, 1 yes, 255 nodata."""
    probability_path: Path | None
    """The probability of change; None if it was not written."""
    before: str
    after: str
    threshold: float
    bands: tuple[int, ...] | None = None
    """The bands of the dates to show; None for those the files name red, green and blue."""
    scale: tuple[float, float] | None = None
    """The values to show as black and white; None to stretch both dates together."""
    gsd: float | None = None
    """The ground resolution that the dates were resampled to; None for before's own pixels."""
    fit: Fit = field(default=UNKNOWN)
    """How the scene fits what the model was trained on."""
    used: Mapping[str, object] = field(default_factory=dict)
    """What was made of the images: bands, stretch, resolution, dates, area of interest, masks."""
    names: tuple[str, str] | None = None
    """What the user calls the dates; None for the names of their files."""
    open_file: OpenFile = field(default=open_dataset, repr=False)
    """How the dates are opened when a picture is drawn."""
    transitions: Transitions | None = None
    """How much ground went from each class to each other; None if the model tells no classes."""
    classes_path: Path | None = None
    """The folder of from.tif and to.tif; None if they were not written."""
    keep: object | None = field(default=None, repr=False)
    """Whatever must live as long as the files do: their temporary folder."""

    @property
    def area(self) -> float:
        """The polygons' area in square metres; in pixels without coordinates."""
        return float(self.polygons[measures(self.grid)[0]].sum())

    @property
    def headline(self) -> str:
        """How much changed, and whether that can be relied on."""
        where = "valid area" if self.used.get("aoi") is None else "valid area of interest"
        polygons = "1 polygon" if len(self.polygons) == 1 else f"{len(self.polygons)} polygons"
        found = f"{100 * self.change_fraction:.2f} % of the {where} changed, in {polygons}"
        return found if self.fit.remark is None else f"{found} ({self.fit.remark})"

    @cached_property
    def mask(self) -> NDArray[np.uint8]:
        """The whole change mask (H, W): 0 no, 1 yes, 255 nodata."""
        return self.read("mask")

    @cached_property
    def probability(self) -> NDArray[np.float32]:
        """The whole probability of change (H, W), NaN where there is no data.

        Raises:
            InputError: It was not written.
        """
        return self.read("probability")

    def read(
        self,
        layer: Literal["mask", "probability"] = "mask",
        *,
        window: Window | None = None,
        shape: tuple[int, int] | None = None,
    ) -> NDArray[Any]:
        """Read a part of a raster, or all of it in fewer pixels.

        Args:
            layer: The mask (uint8, 255 nodata) or the probability (float32, NaN nodata).
            window: Whole pixels of `grid`; all of them if left out.
            shape: Height and width to read the window in. The mask takes the most frequent value,
                the probability the mean.

        Raises:
            InputError: The raster was not written, is gone, or does not hold the window.
        """
        path = {"mask": self.mask_path, "probability": self.probability_path}[layer]
        if path is None:
            raise InputError(
                f"the {layer} was not written; predict again and name a file for it, as in "
                'predict_scene(..., probability="p.tif").'
            )
        if window is not None and not self.grid.holds(window):
            raise InputError(
                f"{window} is empty or leaves the grid of {self.grid.width} x {self.grid.height}; "
                "choose one inside."
            )
        resampling = Resampling.mode if layer == "mask" else Resampling.average
        with rasterio.Env(), open_dataset(path) as dataset:
            try:
                values = dataset.read(1, window=window, out_shape=shape, resampling=resampling)
            except RasterioError as error:
                raise InputError(
                    f"cannot read {path}: {error}; was it changed? Predict again."
                ) from error
        return _as_probability(values) if layer == "probability" else values

    def plot(self, ax: Any = None) -> Any:
        """Draw before, after and the change with matplotlib.

        Axes have the grid's coordinates where rows run east, so that `polygons.plot(ax=...)` fits.

        Args:
            ax: Axes to draw the change on, over the second date; a new figure of three if None.

        Returns:
            The axes: an array of three, or the one given.

        Raises:
            AdaDINOError: matplotlib is not installed.
        """
        from adadino.scene.pictures import plot

        return plot(self, ax)

    def _repr_html_(self) -> str:
        """A notebook's view: a small picture and the numbers, in the page's own colours."""
        from adadino.scene.pictures import as_html

        return as_html(self)

    def save(self, folder: Path | str, *, overwrite: bool = False) -> tuple[Path, ...]:
        """Write the result to a folder: all of it or, if anything fails, nothing.

        The rasters are copied under the names `mask` and `probability` (if there is one), the
        polygons become `polygons.gpkg`, each with a style for QGIS; `overview.png` shows it all,
        unless the two dates can no longer be read, of which a warning tells.

        Args:
            folder: Made if it is not there.
            overwrite: Replace files that are there.

        Returns:
            The files.

        Raises:
            WriteError: A file is there already or cannot be written.
        """
        folder = Path(folder)
        for name in self._names():
            inputs = (self.before, self.after)
            check_target(folder / name, inputs=inputs, overwrite=overwrite)
        with _drafts(folder) as drafts:
            self._write_all(drafts)
            written = [folder / name for name in self._names() if (drafts / name).exists()]
            for target in written:
                (drafts / target.name).replace(target)
        if self.grid.crs is None:
            warnings.warn(
                f"{folder / 'polygons.gpkg'} has no coordinate system; its areas are in pixels, "
                "and so are its coordinates unless the images have a transform.",
                VectorWarning,
                stacklevel=2,
            )
        return tuple(written)

    def write_overview(self, path: Path | str) -> None:
        """Write the picture of before, after and change as a PNG.

        Raises:
            InputError: One of the dates can no longer be read.
            WriteError: The picture cannot be written.
        """
        from adadino.scene.pictures import overview

        write_overview(path, overview(self))

    def write_class_sheet(self, path: Path) -> None:
        """Write the picture of both dates and of what changed from what to what.

        Raises:
            InputError: One of the dates can no longer be read, or the classes were not written.
        """
        from adadino.reporting.sankey import draw_classes

        if self.transitions is None or self.classes_path is None:
            raise InputError(
                "the classes were not written; predict again and name a folder for them, as in "
                'predict_scene(..., classes="classes").'
            )
        before, after, change = self.small()
        maps = []
        for end in ("from", "to"):
            with rasterio.Env(), open_dataset(self.classes_path / f"{end}.tif") as dataset:
                maps.append(dataset.read(1, out_shape=change.shape, resampling=Resampling.mode))
        classes = self.transitions.classes
        draw_classes(
            path, images=(before, after), maps=(maps[0], maps[1]), names=classes.names,
            colours=classes.colours,
        )  # fmt: skip

    def _rasters(self) -> Iterator[tuple[Literal["mask", "probability"], Path]]:
        yield "mask", self.mask_path
        if self.probability_path is not None:
            yield "probability", self.probability_path

    def _names(self) -> Iterator[str]:
        """The files of `save`."""
        for kind, path in self._rasters():
            yield f"{kind}{path.suffix.lower()}"
            if path.suffix.lower() != ".png":  # whose probability does not run from 0 to 1
                yield f"{kind}.qml"
        yield from ("polygons.gpkg", "polygons.qml", "overview.png")

    def _write_all(self, folder: Path) -> None:
        """Write every file of `save` to an empty folder."""
        for kind, path in self._rasters():
            try:
                shutil.copyfile(path, folder / f"{kind}{path.suffix.lower()}")
            except OSError as error:
                where = folder.parent
                raise WriteError(
                    f"cannot copy {path} to {where}: {error.strerror}. {WAY_OUT}"
                ) from error
            if path.suffix.lower() != ".png":
                write_qml(folder / f"{kind}.qml", kind)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", VectorWarning)  # `save` says it, with the final name
            write_layer(self.polygons, folder / "polygons.gpkg", style=qml_text("polygons"))
        write_qml(folder / "polygons.qml", "polygons")
        try:
            self.write_overview(folder / "overview.png")
        except InputError as error:
            warnings.warn(f"there is no overview.png: {error}", AdaDINOWarning, stacklevel=3)

    def small(self, side: int = SIDE) -> tuple[Picture, Picture, Picture]:
        """Before (h, w, 3), after (h, w, 3) and change (h, w) in few pixels."""
        shape = decimated_shape(self.grid.height, self.grid.width, side=side)
        shift = (self.shift.dy, self.shift.dx) if self.registered else (0.0, 0.0)
        before, after = read_pair(
            self.before, self.after, self.grid, shape,
            bands=self.bands, scale=self.scale, shift=shift, open_file=self.open_file,
        )  # fmt: skip
        return before, after, self._small_change(shape)

    def _small_change(self, shape: tuple[int, int]) -> Picture:
        """The mask in few pixels; where change would vanish, the polygons bring it back."""
        change: Picture = self.read("mask", shape=shape).copy()
        if shape == (self.grid.height, self.grid.width) or self.polygons.empty:
            return change
        small = coarse_grid(self.grid, shape)
        drawn = rasterize(
            self.polygons.geometry,
            shape,
            transform=small.transform,
            all_touched=True,
            dtype="uint8",
        )
        change[(drawn == 1) & (change != 255)] = 1
        return change

    @property
    def title(self) -> str:
        """The names of both dates."""
        before, after = (PurePath(name) for name in self.names or (self.before, self.after))
        if before.name != after.name:
            return f"{before.name} and {after.name}"
        # Dates are often told apart by their folders: A/31.png and B/31.png.
        return f"{PurePath(*before.parts[-2:])} and {PurePath(*after.parts[-2:])}"


@contextmanager
def _drafts(folder: Path) -> Iterator[Path]:
    """A hidden folder inside another, which goes again if it was made for nothing."""
    made = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        drafts = tempfile.TemporaryDirectory(prefix=".adadino-", dir=folder)
    except OSError as error:
        raise WriteError(f"cannot write to {folder}: {error.strerror}. {WAY_OUT}") from error
    try:
        with drafts as name:
            yield Path(name)
    finally:
        if made:
            with suppress(OSError):  # not empty: all went well
                folder.rmdir()


def _as_probability(values: NDArray[Any]) -> NDArray[np.float32]:
    """Undo what a PNG stores: p * 65534 in 16 bits, where 65535 is nodata."""
    if values.dtype != np.uint16:
        return np.asarray(values, np.float32)
    return np.where(values == 65535, np.nan, values / np.float32(65534)).astype(np.float32)
