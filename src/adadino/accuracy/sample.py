"""A sample as a GeoPackage that people judge in QGIS, and its verdicts.

The layer `sample` has one square for each pixel. An analyst fills the column `verdict`: change, no
change, or unsure. What the map says of a pixel is not in that layer: whoever judges should not know
it. It is in the tables `pixels` and `strata` of the same file.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import shapely
from numpy.typing import NDArray

from adadino.accuracy.design import CLASSES, Design, Drawn, Stratum, draw, plan
from adadino.accuracy.estimate import Assessment, assess
from adadino.errors import InputError, WriteError, say
from adadino.geo.read.trust import check_layer

if TYPE_CHECKING:
    import geopandas as gpd

    from adadino.geo.grid import Grid

SAMPLE, PIXELS, STRATA = "sample", "pixels", "strata"
WORDS = {"change": 1, "1": 1, "yes": 1, "no change": 0, "nochange": 0, "0": 0, "no": 0}
"""What a verdict may be called, by the class it means."""


@dataclass(frozen=True)
class Judged:
    """A judged sample and what it says."""

    design: Design
    counts: NDArray[np.int64]
    """Judged pixels by stratum (rows) and reference class (columns)."""
    unsure: int
    assessment: Assessment
    pixel_area: float
    """Square metres of a pixel; 1 without a coordinate system."""
    unit: str
    """m2, or px."""


def draw_sample(
    mask: Path | str,
    output: Path | str,
    *,
    error: float = 0.02,
    buffer: int = 0,
    size: int | None = None,
    seed: int = 0,
    overwrite: bool = False,
) -> Design:
    """Draw pixels of a map to judge, and write them as a GeoPackage.

    Args:
        mask: The change mask: 0, 1 and 255 (no data).
        output: The GeoPackage.
        error: Half the width of the 95 % interval of the overall accuracy that is wanted.
        buffer: Pixels around change that are a stratum of their own.
        size: The number of pixels, if it is not to follow from the error.
        seed: What the draw depends on.
        overwrite: Replace a file that is there.

    Raises:
        InputError: The map has no change, or nothing but change.
        WriteError: The file exists, or cannot be written.
    """
    from adadino.geo.grid import Grid
    from adadino.geo.read.source import open_dataset

    path = Path(output)
    if path.suffix.lower() != ".gpkg":
        raise WriteError(f"{path} must be a GeoPackage; end its name in .gpkg.")
    if path.exists() and not overwrite:
        raise WriteError(f"{path} exists; choose another name, or --overwrite.")
    with open_dataset(mask) as dataset:
        grid = Grid.of(dataset)
        design = plan(dataset, error=error, buffer=buffer, size=size, seed=seed)
        drawn = draw(dataset, design)
    _write(path, design, drawn, grid, Path(mask).name)
    return design


def read_sample(path: Path | str) -> Judged:
    """Estimate accuracies and areas from a judged sample.

    Raises:
        InputError: Pixels are not judged, the file is no random sample, or a stratum is empty.
    """
    path = Path(path)
    frame, pixels, strata = _tables(path)
    design, pixel_area, unit = _design(strata)
    stratum = dict(zip(pixels["id"], pixels["stratum"], strict=True))
    counts, unsure, empty = np.zeros((len(design.strata), 2), np.int64), 0, 0
    seen: set[int] = set()
    for row in frame.itertuples():
        if row.id not in stratum or row.id in seen:
            raise InputError(
                f"{path} holds the pixel {say(row.id)} twice or did not draw it; only verdicts may "
                "be edited. Draw the sample again, or restore the rows."
            )
        seen.add(row.id)
        word = "" if row.verdict is None or row.verdict != row.verdict else str(row.verdict)
        word = word.strip().lower()
        if word in WORDS:
            counts[stratum[row.id], WORDS[word]] += 1
        elif word == "unsure":
            unsure += 1
        elif word:
            raise InputError(
                f"pixel {row.id} has the verdict {say(word)}; write change, no change or unsure."
            )
        else:
            empty += 1
    empty += len(stratum) - len(seen)
    if empty:
        raise InputError(
            f"{empty} of {len(stratum)} pixels of {path} are not judged. Judge all of them: those "
            "that one leaves out are seldom the easy ones, and the figures would be too good."
        )
    for one, judged in zip(design.strata, counts.sum(axis=1), strict=True):
        if judged < 2:
            raise InputError(
                f"the stratum {one.name!r} has {judged} judged pixels; nothing can be said of it, "
                "and so nothing of the whole map. Judge the unsure ones, or draw a larger sample."
            )
    found = assess(counts, [s.pixels for s in design.strata], [s.mapped for s in design.strata])
    return Judged(design, counts, unsure, found, pixel_area, unit)


def _write(path: Path, design: Design, drawn: Drawn, grid: Grid, name: str) -> None:
    import geopandas as gpd
    import pandas as pd
    import pyogrio

    from adadino.files import atomic, beside
    from adadino.geo.polygons.measure import measure, move

    ids = np.arange(1, len(drawn.row) + 1)
    squares = shapely.box(drawn.col, drawn.row, drawn.col + 1, drawn.row + 1)
    middle = np.array([shapely.box(*_middle(grid))], dtype=object)
    pixel = float(measure(middle, np.ones(1, np.int64), grid)[0][0])
    text: dict[str, Any] = {
        column: pd.Series([None] * len(ids), dtype="str")
        for column in ("verdict", "note", "judged_by", "judged_at")
    }
    frame = gpd.GeoDataFrame(
        {"id": ids, **text}, geometry=move(squares, grid.transform), crs=grid.system
    )
    strata = pd.DataFrame([asdict(stratum) for stratum in design.strata])
    strata = strata.assign(
        seed=design.seed, error=design.error, buffer=design.buffer, map=name,
        pixel_area=pixel, unit="px" if grid.crs is None else "m2",
    )  # fmt: skip
    tables = {PIXELS: pd.DataFrame({"id": ids, "stratum": drawn.stratum}), STRATA: strata}
    with beside(path) as folder:
        draft = folder / path.name
        pyogrio.write_dataframe(frame, draft, layer=SAMPLE, driver="GPKG")
        for layer, table in tables.items():
            pyogrio.write_dataframe(table, draft, layer=layer, driver="GPKG", append=True)
        with atomic(path) as part:
            draft.replace(part)


def _middle(grid: Grid) -> tuple[int, int, int, int]:
    row, col = grid.height // 2, grid.width // 2
    return col, row, col + 1, row + 1


def _tables(path: Path) -> tuple[gpd.GeoDataFrame, Any, Any]:
    """The layer and the two tables of a sample; a file that is none is refused with its reason."""
    import geopandas as gpd
    import pyogrio
    from pyogrio.errors import DataLayerError, DataSourceError

    check_layer(path)
    try:
        layers = {name for name, _ in pyogrio.list_layers(path)}
        if {SAMPLE, PIXELS, STRATA} <= layers:
            frame = gpd.read_file(path, layer=SAMPLE)
            return frame, *(pyogrio.read_dataframe(path, layer=t) for t in (PIXELS, STRATA))
        columns = set(pyogrio.read_info(path)["fields"])
    except (DataSourceError, DataLayerError, OSError, KeyError) as error:
        raise InputError(f"cannot read the sample {path}: {error}.") from error
    if {"rank", "list"} <= columns:
        raise InputError(
            f"{path} holds verdicts of adadino judge, on polygons and partly from the list of the "
            "least certain ones. Those are no random sample of the map: they would make it look "
            "worse than it is, and say nothing of what it misses. Draw one: adadino assess sample."
        )
    raise InputError(
        f"{path} is no sample: it lacks the tables {PIXELS} and {STRATA} of adadino assess sample. "
        "Judge in that file itself, not in a copy of one layer."
    )


def _design(strata: Any) -> tuple[Design, float, str]:
    try:
        rows = json.loads(strata.to_json(orient="records"))
        known = [
            Stratum(r["name"], int(r["mapped"]), int(r["pixels"]), int(r["sampled"])) for r in rows
        ]
        first = rows[0]
        design = Design(tuple(known), int(first["seed"]), first["error"], int(first["buffer"]))
        return design, float(first["pixel_area"]), str(first["unit"])
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise InputError(
            f"the table {STRATA} is damaged: {error}; draw the sample again."
        ) from error


def facts(judged: Judged) -> dict[str, Any]:
    """An assessment as JSON has it."""
    found, total = judged.assessment, sum(s.pixels for s in judged.design.strata)
    area = found.shares[1].scaled(total * judged.pixel_area)
    return {
        "overall": _interval(found.overall),
        "users": dict(zip(CLASSES, map(_interval, found.users), strict=True)),
        "producers": dict(zip(CLASSES, map(_interval, found.producers), strict=True)),
        f"change_area_{judged.unit}": _interval(area),
        f"mapped_area_{judged.unit}": found.mapped[1] * total * judged.pixel_area,
        "matrix": found.matrix.tolist(),
        "counts": judged.counts.tolist(),
        "unsure": judged.unsure,
        "strata": [asdict(stratum) for stratum in judged.design.strata],
    }


def _interval(found: Any) -> dict[str, float] | None:
    if found is None:
        return None
    return {"value": found.value, "low": found.low, "high": found.high, "margin": found.margin}
