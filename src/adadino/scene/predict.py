"""`predict_scene`: two rasters of one place in, a map of what changed out.

- The model's answers are blended into rows of probabilities, which go to disk as they are finished
  (`journal`). The outputs are made from those rows, so memory is one band of rows, a killed run
  goes on, and the answer for a pixel is the same whatever happened on the way.
- The FFN chunks of a scene are chosen once, from a sample of its tiles taken as one batch
  (`selection="scene"`), so that the answer for a place does not depend on which tiles happened to
  share its batch.
"""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from adadino.domain import Fit
from adadino.errors import ConfigError, DatesWarning
from adadino.geo.grid import Grid
from adadino.geo.read.dates import Moment
from adadino.geo.read.reader import PairReader
from adadino.geo.read.source import ImagePath, OpenFile, open_dataset
from adadino.geo.write.cog import BLOCK
from adadino.geo.write.stac import file_times, write_item
from adadino.runtime.protocol import Runner
from adadino.runtime.runner import open_runner
from adadino.scene.classes import find_class_polygons, write_classes
from adadino.scene.colours import shown_bands, write_colours
from adadino.scene.extent import Extent
from adadino.scene.facts import scene_facts, scene_tags, scene_used
from adadino.scene.fit import check_scene
from adadino.scene.journal import Journal, open_journal
from adadino.scene.options import SceneOptions
from adadino.scene.outputs import (
    Targets,
    all_or_none,
    sieved_masks,
    write_rasters,
    write_vectors,
)
from adadino.scene.pace import Report, begin
from adadino.scene.pair import OpenDates, check_different, open_dates
from adadino.scene.polygons import find_polygons
from adadino.scene.result import SceneResult
from adadino.scene.stream import SceneStream, fill

if TYPE_CHECKING:
    from adadino.config import ClassesConfig
    from adadino.model.detector import Detector


def predict_scene(
    before: ImagePath,
    after: ImagePath,
    model: Detector | ImagePath = "tiny",
    *,
    output: ImagePath | None = None,
    probability: ImagePath | None = None,
    vector: ImagePath | None = None,
    overview: ImagePath | None = None,
    stac: ImagePath | None = None,
    report: ImagePath | None = None,
    classes: ImagePath | None = None,
    options: SceneOptions | None = None,
    extent: Extent | None = None,
    backbone: str | None = None,
    device: str = "auto",
    overwrite: bool = False,
    resume: bool = False,
    progress: Report | None = None,
    opened: Callable[[PairReader], None] | None = None,
    names: tuple[str, str] | None = None,
    open_file: OpenFile = open_dataset,
) -> SceneResult:
    """Find the change between two rasters of one place.

    On the CPU the same inputs give the same bytes, whatever the batch and the number of readers,
    and whether or not the run was interrupted; on a GPU, to rounding.

    Args:
        before: The first date, whose grid the result has: anything GDAL opens.
        after: The second date; warped onto that grid where its own differs.
        model: A model, or what `adadino.load` takes.
        output: The change mask: a COG (.tif), or .png for images without coordinates. Without it
            mask and probability go to a temporary folder that lives as long as the result.
        probability: The probability of change, as its own raster.
        vector: Polygons: .gpkg, .geojson, .fgb or .shp.
        overview: A picture of before, after and change: .png.
        stac: A STAC item that describes the outputs: .json.
        report: A document with map, figures, settings and chips of polygons: .html or .pdf.
        classes: A folder for what changed into what, of a model that tells classes: from.tif and
            to.tif, transitions.csv in hectares, and pictures.
        options: Threshold, tiling, selection, bands, resolution, registration.
        extent: Area of interest, masks of clouds, dates; everything there is if None.
        backbone: Weights of the model's backbone, if not where the model says.
        device: Where the model runs.
        overwrite: Replace outputs that exist, and the rows of an interrupted run.
        resume: Go on from the rows of an interrupted run of this output, if there are any.
        progress: Called with tiles done, all tiles, and a message; see `scene.pace.Report`.
        opened: Called once with the open, registered pair, before the model runs.
        names: What to call the dates in tags, messages and pictures, if not by their paths.
        open_file: How the dates are opened, every time and in every thread.

    Raises:
        InputError: The rasters cannot be read or compared.
        WriteError: An output exists, is an input, or cannot be written; or there are rows of an
            interrupted run, and neither `resume` nor `overwrite` is given.
    """
    options = options or SceneOptions()
    check_different(before, after, names)
    keep = _TemporaryFolder() if output is None and not resume else None
    if keep is not None:
        output = keep.path / "change.tif"
        probability = probability or keep.path / "probability.tif"
    if output is None:
        raise ConfigError("resume needs an output: its name is how a run is found again.")
    targets = Targets.named(output, probability, vector, overview, stac, report, classes)
    if classes is not None:
        import matplotlib  # noqa: F401  # without it the pictures would fail after hours of work

    targets.claim((str(before), str(after)), overwrite=overwrite, resume=resume)
    with ExitStack() as stack:
        begin(progress, "opening")
        opening = open_model(model, device, options, backbone=backbone, classes=True)
        forward = stack.enter_context(opening)
        if classes is not None and forward.classes is None:
            raise ConfigError(
                "the model tells where something changed, not what into: leave --classes out, or "
                "give a model that was trained with classes (docs/how-to/classes.md)."
            )
        dates = open_dates(
            before,
            after,
            options,
            extent=extent,
            names=names,
            open_file=open_file,
            wanted=forward.wanted,
        )
        pair = stack.enter_context(dates)
        fit = check_scene(pair, forward, options)
        targets.check_grid(pair.reader.grid)
        begin(progress, "preparing")
        if opened is not None:
            opened(pair.reader)
        again = {"resume": resume, "overwrite": overwrite}
        return dataclasses.replace(
            _predict(pair, forward, fit, options, targets, progress, **again), keep=keep
        )


@contextmanager
def open_model(
    model: Detector | ImagePath,
    device: str,
    options: SceneOptions,
    *,
    backbone: str | None = None,
    threads: int | None = None,
    classes: bool = False,
) -> Iterator[Runner]:
    """Get a model ready for a scene's tiles; see `open_runner`.

    Raises:
        ConfigError: The model does not take tiles of the size asked for.
    """
    with open_runner(
        model,
        device,
        tile=options.tile,
        batch=options.batch,
        selection=options.selection,
        engine=options.engine,
        backbone=backbone,
        threads=threads,
        classes=classes,
    ) as forward:
        if options.tile % forward.stride:
            raise ConfigError(
                f"tile is {options.tile}, must be a multiple of {forward.stride} pixels."
            )
        yield forward


def _predict(
    pair: OpenDates,
    forward: Runner,
    fit: Fit,
    options: SceneOptions,
    targets: Targets,
    progress: Report | None,
    *,
    resume: bool,
    overwrite: bool,
) -> SceneResult:
    """Fill the journal with rows, and make files of them."""
    digest = forward.digest()
    tags = scene_tags(pair, forward, options, digest)
    with open_journal(
        targets.mask,
        pair.reader.grid.shape,
        scene_facts(pair, forward, options, digest),
        outputs=[str(path.resolve()) for path in targets.files],
        resume=resume,
        overwrite=overwrite,
        classes=forward.classes is not None,
    ) as journal:
        fill(journal, SceneStream(pair.reader, forward, options), progress)
        begin(progress, "writing")
        with all_or_none(targets):
            found = _write(journal, targets, pair, options, tags, forward.classes)
            used = scene_used(pair, forward)
            used["temperature"] = forward.tags().get("ADADINO_TEMPERATURE")
            result = dataclasses.replace(found, fit=fit, used=used)
            undated = _present(result, targets, tags, pair)
            notes = (*pair.warnings, *fit.sentences, *forward.warnings)
            notes = (*notes, *_unplaced(pair.reader.grid), *undated)
            result = dataclasses.replace(result, warnings=notes)
            styles = write_colours(pair.reader, targets.mask)
            result = dataclasses.replace(result, outputs=(*result.outputs, *styles))
            if targets.report is not None:
                from adadino.scene.report import write_report

                write_report(result, targets.report, tags)
    return result


def _write(
    journal: Journal,
    targets: Targets,
    pair: OpenDates,
    options: SceneOptions,
    tags: Mapping[str, object],
    classes: ClassesConfig | None,
) -> SceneResult:
    """Make rasters, polygons and styles of the finished rows."""
    grid = pair.reader.grid
    with sieved_masks(journal, grid, options) as masks:
        changed, valid = write_rasters(
            journal.blocks(BLOCK),
            targets,
            grid,
            threshold=options.threshold,
            tags=tags,
            masks=masks,
        )
    transitions = None
    if classes is None:
        frame = find_polygons(journal, targets.mask, pair, options)
    else:
        transitions = write_classes(journal, grid, classes, targets, tags)
        frame = find_class_polygons(journal, pair, classes, targets, options)
    write_vectors(frame, targets)
    return SceneResult(
        grid=grid,
        change_fraction=changed / max(valid, 1),
        polygons=frame,
        shift=pair.shift,
        registered=pair.registered,
        outputs=tuple(targets.files),
        warnings=(),
        mask_path=targets.mask,
        probability_path=targets.probability,
        before=pair.before,
        after=pair.after,
        threshold=options.threshold,
        bands=shown_bands(pair.reader, options),
        scale=options.scale,
        gsd=options.gsd,
        names=pair.names,
        open_file=pair.open_file,
        transitions=transitions,
        classes_path=targets.classes,
    )


def _present(
    result: SceneResult, targets: Targets, tags: Mapping[str, object], pair: OpenDates
) -> list[str]:
    """Write the picture and the STAC item, if they were asked for; returns what to warn of."""
    if targets.overview is not None:
        result.write_overview(targets.overview)
    if targets.sheet is not None:
        result.write_class_sheet(targets.sheet)
    if targets.stac is None:
        return []
    properties = {
        name.replace("ADADINO_", "adadino:").lower(): value
        for name, value in tags.items()
        if name.startswith("ADADINO_")
    }
    properties["adadino:change_fraction"] = result.change_fraction
    moments: Sequence[Moment] = pair.moments or ()
    notes = []
    if not moments:
        moments = file_times(pair.before, pair.after)
        notes.append(
            f"nothing says when the images were taken, so {targets.stac.name} has the times at "
            "which their files were written; give --dates BEFORE,AFTER."
        )
        warnings.warn(notes[0], DatesWarning, stacklevel=4)
    write_item(
        targets.stac,
        grid=result.grid,
        outputs=targets.roles,
        properties=properties,
        moments=moments,
    )
    return notes


class _TemporaryFolder:
    """A folder that goes when nobody holds it any more."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="adadino-"))
        # tempfile's own class would warn that nobody closed it.
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


def _unplaced(grid: Grid) -> tuple[str, ...]:
    """What to say where pixels are all there is to measure by."""
    if grid.crs is not None:
        return ()
    return ("neither date has a coordinate system: areas and lengths are in pixels.",)
