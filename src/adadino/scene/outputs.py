"""From finished rows to files: mask, probability, polygons, styles, overview and STAC item.

All of them appear, or none: what was written is removed again if a later one fails.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import rasterio
from numpy.typing import NDArray
from rasterio.errors import NotGeoreferencedWarning
from rasterio.io import DatasetReader

from adadino.errors import WriteError
from adadino.files import work_folder
from adadino.geo.grid import Grid
from adadino.geo.polygons.vector import sieved
from adadino.geo.read.source import ImagePath
from adadino.geo.write.cog import (
    BLOCK,
    MASK,
    PROBABILITY,
    Layer,
    RowWriter,
    check_raster,
    check_target,
    raster_writer,
)
from adadino.geo.write.layers import FORMATS, check_layer, write_layer
from adadino.geo.write.qml import Kind, qml_text, write_qml
from adadino.geo.write.stac import no_place
from adadino.scene.journal import Journal, clear_remnant, outputs_begun
from adadino.scene.options import SceneOptions

if TYPE_CHECKING:
    import geopandas as gpd


@dataclass(frozen=True)
class Targets:
    """The files that were asked for."""

    mask: Path
    probability: Path | None = None
    vector: Path | None = None
    overview: Path | None = None
    stac: Path | None = None
    report: Path | None = None
    classes: Path | None = None
    """The folder of what changed into what."""

    @classmethod
    def named(
        cls,
        mask: ImagePath,
        probability: ImagePath | None,
        vector: ImagePath | None,
        overview: ImagePath | None,
        stac: ImagePath | None,
        report: ImagePath | None = None,
        classes: ImagePath | None = None,
    ) -> Targets:
        """The files by the names a user gives."""
        others = (probability, vector, overview, stac, report, classes)
        return cls(Path(mask), *(None if name is None else Path(name) for name in others))

    @property
    def roles(self) -> dict[str, Path]:
        """What was asked for, by what it is; the STAC item lists these."""
        asked = {
            "mask": self.mask,
            "probability": self.probability,
            "polygons": self.vector,
            "overview": self.overview,
        }
        return {role: path for role, path in asked.items() if path is not None}

    @property
    def styles(self) -> dict[Path, list[Kind]]:
        """The files of QGIS styles; a raster and a layer of one name share one."""
        named: list[tuple[Path | None, Kind]] = [
            (self.mask, "mask"),
            (self.probability, "probability"),
            (self.vector, "polygons"),
        ]
        styles: dict[Path, list[Kind]] = {}
        for path, kind in named:
            # A name such as `.` has no end to replace; `check` says that it is a folder.
            if path is not None and path.name and path.suffix.lower() != ".png":
                styles.setdefault(path.with_suffix(".qml"), []).append(kind)
        return styles

    @property
    def files(self) -> list[Path]:
        """Every file that will appear under its own name."""
        items = [path for path in (self.stac, self.report) if path is not None]
        return [*self.roles.values(), *items, *self.styles, *self._class_files()]

    @property
    def ends(self) -> dict[str, Path]:
        """The rasters of what changed places were and are, if they were asked for."""
        if self.classes is None:
            return {}
        return {"from": self.classes / "from.tif", "to": self.classes / "to.tif"}

    @property
    def transitions(self) -> Path | None:
        """The matrix of what changed into what; its picture has the same name."""
        return None if self.classes is None else self.classes / "transitions.csv"

    @property
    def sheet(self) -> Path | None:
        """The picture of both dates and their classes."""
        return None if self.classes is None else self.classes / "overview.png"

    @staticmethod
    def categories(path: Path) -> Path:
        """Where GDAL looks for the names of a raster's classes."""
        return path.with_name(f"{path.name}.aux.xml")

    def _class_files(self) -> Iterator[Path]:
        for path in self.ends.values():
            yield from (path, path.with_suffix(".qml"), self.categories(path))
        if self.transitions is not None and self.sheet is not None:
            yield from (self.transitions, self.transitions.with_suffix(".png"), self.sheet)

    def claim(self, inputs: Iterable[str], *, overwrite: bool, resume: bool) -> None:
        """Refuse names before work is spent on them; see `check`.

        A run that goes on may replace what the interrupted run of the same mask left.
        """
        ours: list[str] = []
        if resume:
            clear_remnant(self.mask)
            ours = outputs_begun(work_folder(self.mask))
        self.check(inputs, overwrite=overwrite, ours=ours)

    def check(self, inputs: Iterable[str], *, overwrite: bool, ours: Iterable[str] = ()) -> None:
        """Refuse names before work is spent on them.

        Args:
            inputs: Files that must not be replaced.
            overwrite: Whether others may be.
            ours: Files of an interrupted run of the same output: they may be replaced.

        Raises:
            WriteError: A name is taken, has a wrong suffix, or is given twice.
        """
        inputs, ours = list(inputs), set(ours)
        seen: set[Path] = set()
        for path in self.files:
            where = path.resolve()
            if where in seen:
                raise WriteError(f"two outputs have the name {path}; choose another for one.")
            seen.add(where)
            # A style belongs to its output: left alone by an earlier one, it holds nothing up.
            free = overwrite or str(where) in ours or path in self.styles
            check_target(path, inputs=inputs, overwrite=free)
        for named, suffixes in (
            (self.vector, tuple(FORMATS)),
            (self.overview, (".png",)),
            (self.stac, (".json", ".geojson")),
            (self.report, (".html", ".pdf")),
        ):
            if named is not None and named.suffix.lower() not in suffixes:
                raise WriteError(f"cannot write {named}; end its name in {', '.join(suffixes)}.")
        if self.classes is not None and self.classes.exists() and not self.classes.is_dir():
            raise WriteError(f"{self.classes} is a file; give --classes the name of a folder.")
        for path, kinds in self.styles.items():
            if {"mask", "probability"} <= set(kinds):
                raise WriteError(
                    f"mask and probability would share the style {path}; choose another name for "
                    "one."
                )

    def check_grid(self, grid: Grid) -> None:
        """Refuse outputs that cannot lie where the scene lies.

        Raises:
            WriteError: A raster's suffix is unknown, a PNG would need coordinates, or GeoJSON or a
                STAC item a place on Earth.
        """
        for path in (self.mask, self.probability):
            if path is not None:
                check_raster(path, grid)
        if self.vector is not None:
            check_layer(self.vector, grid.system)
        if self.stac is not None and not grid.on_earth:
            raise WriteError(no_place(self.stac, grid))


@contextmanager
def all_or_none(targets: Targets) -> Iterator[None]:
    """Remove the outputs again if not all of them can be written."""
    files = targets.files
    if targets.vector is not None:
        companions = FORMATS[targets.vector.suffix.lower()].companions
        files += [targets.vector.with_suffix(suffix) for suffix in companions]
    older = {path: _identity(path) for path in files}
    new_folder = targets.classes is not None and not targets.classes.exists()
    try:
        yield
    except BaseException:
        for path, identity in older.items():
            if _identity(path) != identity:  # what was there and not yet replaced stays
                path.unlink(missing_ok=True)
        if new_folder and targets.classes is not None:
            with suppress(OSError):
                targets.classes.rmdir()
        raise


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file has this name now."""
    try:
        return path.stat().st_ino, path.stat().st_mtime_ns
    except OSError:
        return None


def change_flags(block: NDArray[np.float32], threshold: float) -> NDArray[np.uint8]:
    """The change mask of probabilities: 0, 1, and 255 where there is no data."""
    flags = (block >= threshold).view(np.uint8)
    flags[np.isnan(block)] = MASK.nodata
    return flags


def write_rasters(
    blocks: Iterable[tuple[int, NDArray[np.float32]]],
    targets: Targets,
    grid: Grid,
    *,
    threshold: float,
    tags: Mapping[str, object],
    masks: Iterable[tuple[int, NDArray[np.uint8]]] | None = None,
) -> tuple[int, int]:
    """Write the mask, and the probability if it was asked for; returns changed and valid pixels.

    Args:
        blocks: (first row, probabilities (h, width)) from top to bottom.
        targets: Their names.
        grid: Where the pixels lie.
        threshold: The probability from which a pixel changed.
        tags: What the rasters say of themselves.
        masks: The mask of each block, if it is not just that of the threshold.
    """
    rows = masks if masks is None else iter(masks)
    changed = valid = 0
    with ExitStack() as stack:

        def writer(path: Path, layer: Layer) -> RowWriter:
            return stack.enter_context(raster_writer(path, grid, layer, tags=tags, overwrite=True))

        mask = writer(targets.mask, MASK)
        chance = writer(targets.probability, PROBABILITY) if targets.probability else None
        for row, block in blocks:
            flags = change_flags(block, threshold) if rows is None else next(rows)[1]
            mask.write(row, flags)
            if chance is not None:
                chance.write(row, block)
            changed += int(np.count_nonzero(flags == 1))
            valid += int(np.count_nonzero(flags != MASK.nodata))
    return changed, valid


@contextmanager
def sieved_masks(
    journal: Journal, grid: Grid, options: SceneOptions
) -> Iterator[Iterable[tuple[int, NDArray[np.uint8]]] | None]:
    """The mask without what is smaller than the least area, in blocks; None if nothing is.

    Which changes are small is known when all rows are, so that the mask is written twice: first, as
    the threshold gives it, into the run's work folder.
    """
    if options.min_area <= 0:
        yield None
        return
    draft = Targets(journal.folder / "mask.tif")
    write_rasters(journal.blocks(BLOCK), draft, grid, threshold=options.threshold, tags={})
    with open_mask(draft.mask) as raster:
        yield sieved(raster, grid, min_area=options.min_area, fill=True)


@contextmanager
def open_mask(path: Path) -> Iterator[DatasetReader]:
    """Open a written mask."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)  # a scene in pixels has no place
        with rasterio.open(path) as raster:
            yield raster


def write_vectors(frame: gpd.GeoDataFrame, targets: Targets) -> None:
    """Write the polygons, if they were asked for, and the styles of all outputs."""
    if targets.vector is not None:
        write_layer(frame, targets.vector, overwrite=True, style=qml_text("polygons"))
    for path, kinds in targets.styles.items():
        write_qml(path, *kinds)
