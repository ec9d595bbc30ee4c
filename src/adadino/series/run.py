"""`predict_series`: many images of one place in, the dates of what changed out."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import rasterio
from numpy.typing import NDArray

import adadino
from adadino.errors import ConfigError, WriteError
from adadino.files import beside, sole_writer
from adadino.geo.grid import Grid
from adadino.geo.read.source import ImagePath, open_dataset
from adadino.geo.write.layers import write_layer
from adadino.geo.write.qml import qml_text
from adadino.scene.extent import Place
from adadino.scene.options import SceneOptions
from adadino.scene.pace import Report, begin
from adadino.scene.predict import open_model
from adadino.series.dates import Scene, Shot, masks_by_date, place_of, read_series
from adadino.series.maps import write_maps
from adadino.series.options import SeriesOptions
from adadino.series.page import write_page
from adadino.series.pairs import Job, predict_pairs
from adadino.series.pictures import draw_frames, write_gif, write_timelines
from adadino.series.polygons import find_polygons

if TYPE_CHECKING:
    import geopandas as gpd

    from adadino.model.detector import Detector

PAIRS, SUMMARY, PAGE = "pairs", "series.json", "series.html"


@dataclass(frozen=True, eq=False)  # tables do not compare to one answer
class SeriesResult:
    """What was found, and where it was written."""

    folder: Path
    grid: Grid
    images: tuple[str, ...]
    """The dates' files, from the oldest to the newest."""
    dates: tuple[str, ...]
    """When each was taken."""
    sources: tuple[str, ...]
    """Who says so: `given`, `STAC`, the name of a tag, or `name`."""
    change_fraction: float
    """Share of the valid pixels that changed."""
    domain: str | None
    """How a pair lies outside the ground resolution that the model knows."""
    polygons: gpd.GeoDataFrame = field(repr=False)
    outputs: tuple[Path, ...]

    @cached_property
    def first_change(self) -> NDArray[np.uint8]:
        """The number of the date that shows the first change, in `dates` from 0; 0 no, 255 none."""
        with rasterio.Env(), open_dataset(self.folder / "first_change.tif") as raster:
            values: NDArray[np.uint8] = raster.read(1)
        return values

    def as_json(self) -> dict[str, Any]:
        """What `series.json` holds."""
        dated = zip(self.images, self.dates, self.sources, strict=True)
        return {
            "dates": [
                {"number": number, "image": image, "date": day, "said_by": source}
                for number, (image, day, source) in enumerate(dated)
            ],
            "change_fraction": self.change_fraction,
            "domain": self.domain,
            "polygons": len(self.polygons),
            "outputs": [str(path) for path in self.outputs],
        }


def predict_series(
    images: Sequence[ImagePath],
    model: Detector | ImagePath = "tiny",
    *,
    output: ImagePath,
    options: SceneOptions | None = None,
    series: SeriesOptions | None = None,
    place: Place | None = None,
    backbone: str | None = None,
    device: str = "auto",
    overwrite: bool = False,
    progress: Report | None = None,
) -> SeriesResult:
    """Find what changed in a series of images of one place, and when.

    Each pair of dates that is compared is a scene (`predict_scene`) in the folder `pairs`. Called
    again, this goes on where it was stopped, and a series that has grown costs its new pairs.

    Args:
        images: Files, folders of files, or STAC documents, in any order.
        model: A model, or what `adadino.load` takes.
        output: The folder to write to.
        options: Threshold, tiling, selection, bands, resolution, registration.
        series: Dates, pairs, the rule of persistence, pictures.
        place: Area of interest and masks of clouds. A mask belongs to the date in its name or
            before it, as in `2019-06-01=clouds.tif=scl`.
        backbone: Weights of the model's backbone, if not where the model says.
        device: Where the model runs.
        overwrite: Compute all pairs again.
        progress: Called with tiles done, all tiles, and a message; see `scene.pace.Report`.

    Raises:
        InputError: The images cannot be read, dated, told apart or compared.
        ConfigError: The dates given are no dates, too few, or not in order.
        WriteError: The folder holds something else, or the pairs of another series.
    """
    options, series, place = options or SceneOptions(), series or SeriesOptions(), place or Place()
    if options.split is not None:
        raise ConfigError("split is for one scene: leave it out, or use adadino predict.")
    folder = Path(output)
    _check_folder(folder, overwrite=overwrite)
    shots = read_series(images, series.dates, options.bands, pairs=series.pairs)
    masks = masks_by_date(place.mask, shots)
    where = place_of(shots[0], place, options.gsd)
    with open_model(model, device, options, backbone=backbone) as forward:
        digest = f"{forward.digest()} {forward.kind}"
    new = not folder.exists()
    job = Job(
        folder / PAIRS, shots[0], model, digest, backbone, device, options, place, masks
    )  # fmt: skip
    try:
        with sole_writer(folder / SUMMARY, "series"):
            pairs = predict_pairs(
                shots, series.compared(len(shots)), job, overwrite=overwrite, progress=progress
            )
            begin(progress, "writing")
            return _write(folder, shots, pairs, where, options, series, digest)
    finally:
        if new and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


def _check_folder(folder: Path, *, overwrite: bool) -> None:
    if folder.exists() and not folder.is_dir():
        raise WriteError(f"{folder} is a file; give a folder for the results.")
    used = folder.is_dir() and any(folder.iterdir())
    if used and not overwrite and not (folder / PAIRS).is_dir():
        raise WriteError(
            f"{folder} is not empty and holds no series; choose another folder, or --overwrite."
        )


def _write(
    folder: Path,
    shots: Sequence[Shot],
    pairs: dict[tuple[int, int], Path],
    where: Scene,
    options: SceneOptions,
    series: SeriesOptions,
    digest: str,
) -> SeriesResult:
    """Make maps, polygons and pictures of the pairs; all appear together."""
    labels = [shot.label for shot in shots]
    tags = {
        "TIFFTAG_SOFTWARE": f"adadino {adadino.__version__}",
        "ADADINO_MODEL": digest[:16],
        "ADADINO_THRESHOLD": options.threshold,
        "ADADINO_DATES": labels,
        "ADADINO_PAIRS": series.pairs,
        "ADADINO_STAYS": series.stays,
    }
    with beside(folder / SUMMARY) as drafts:
        changed, valid = write_maps(
            drafts, pairs, labels, where.grid,
            threshold=options.threshold, stays=series.stays, tags=tags,
        )  # fmt: skip
        frame = find_polygons(drafts, labels, where.grid, options)
        write_layer(frame, drafts / "change.gpkg", style=qml_text("polygons"))
        (drafts / "timelines").mkdir()
        write_timelines(drafts / "timelines", frame, shots, where, options, count=series.timelines)
        frames = draw_frames(frame, shots, where, options)
        write_page(drafts / PAGE, frames.pictures, labels, frame, frames.rings, where.grid)
        if series.gif:
            write_gif(drafts / "series.gif", frames, frame, shots)
        names = sorted(path.relative_to(drafts) for path in drafts.rglob("*") if path.is_file())
        result = SeriesResult(
            folder=folder,
            grid=where.grid,
            images=tuple(shot.path for shot in shots),
            dates=tuple(labels),
            sources=tuple(shot.moment.source for shot in shots),
            change_fraction=changed / max(valid, 1),
            domain=_outside(pairs.values()),
            polygons=frame,
            outputs=(*(folder / name for name in names), folder / SUMMARY),
        )
        (drafts / SUMMARY).write_text(json.dumps(result.as_json(), indent=1), encoding="utf-8")
        shutil.rmtree(folder / "timelines", ignore_errors=True)
        for path in sorted(drafts.iterdir()):
            path.replace(folder / path.name)
    return result


def _outside(pairs: Iterable[Path]) -> str | None:
    """What the first pair that is outside what the model knows says of itself."""
    for path in pairs:
        with rasterio.Env(), open_dataset(path) as raster:
            remark: str | None = raster.tags().get("ADADINO_DOMAIN")
        if remark is not None:
            return remark
    return None
