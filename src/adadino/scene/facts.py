"""What a scene's probabilities depend on, and what its rasters say of themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import adadino
from adadino.geo.read.stretch import BYTES
from adadino.runtime.protocol import Runner
from adadino.scene.fit import resolution_fit
from adadino.scene.journal import file_facts
from adadino.scene.options import SceneOptions
from adadino.scene.pair import OpenDates

ANSWERS = "0.1.0"
"""The first version that gives the answers of this one. Rows and units of any version since then
are continued; a change that moves a probability raises it."""


def scene_facts(
    pair: OpenDates, forward: Runner, options: SceneOptions, digest: str
) -> dict[str, object]:
    """What the rows of a run depend on; what the user calls the files is no part of it."""
    return {
        "before": file_facts(pair.before),
        "after": file_facts(pair.after),
        "model": digest,
        "device": forward.kind,
        **option_facts(options),
        **_extent_facts(pair),
        "version": ANSWERS,
    }


def _extent_facts(pair: OpenDates) -> dict[str, object]:
    """Which pixels are compared; None for all of them, as in runs that knew no extent."""
    interest, masks = pair.reader.interest, pair.reader.masks
    files = [[*file_facts(mask.path), mask.rule.name] for mask in masks]
    return {"aoi": None if interest is None else interest.digest, "masks": files or None}


def option_facts(options: SceneOptions) -> dict[str, object]:
    """The settings that move a probability."""
    names = (
        "tile",
        "overlap",
        "selection",
        "sample",
        "engine",
        "bands",
        "scale",
        "register",
        "gsd",
    )
    batch = options.batch if options.selection == "batch" else None
    return {**{name: getattr(options, name) for name in names}, "batch": batch}


def scene_used(pair: OpenDates, forward: Runner) -> dict[str, object]:
    """What was made of the images, as JSON holds it; None where there is nothing to say."""
    domain = forward.domain
    reader, moments, interest = pair.reader, pair.moments, pair.reader.interest
    stretch, fit = reader.stretch, resolution_fit(reader, domain, any_too=True)
    return {
        "model_name": forward.name,
        "bands": [bands.text for bands in reader.bands],
        "stretch": None if stretch is BYTES else {"low": stretch.low, "high": stretch.high},
        "resolution_m": None if fit.metres is None else round(fit.metres, 4),
        "domain": fit.remark,
        "dates": None if moments is None else [moment.day for moment in moments],
        "dates_source": None if moments is None else moments[0].source,
        "aoi": None if interest is None else Path(interest.name).name,
        "aoi_m2": None if interest is None else interest.square_metres,
        "masks": [f"{mask.text}: {mask.share:.1%} left out" for mask in reader.masks] or None,
    }


def used_lines(used: Mapping[str, Any]) -> Iterator[str]:
    """What was used, line by line, for people."""
    yield f"model: {used['model_name']}"
    first, second = used["bands"]
    yield f"bands: {first}" if first == second else f"bands: {first}; after {second}"
    stretch = used["stretch"]
    if stretch is not None:
        ends = (
            "-".join(f"{value:g}" for value in pair) for pair in zip(*stretch.values(), strict=True)
        )
        bands = "red, green, blue " if len(stretch["low"]) == 3 else "each band "
        yield f"values from black to white: {bands}{', '.join(ends)}"
    if used["resolution_m"] is not None:
        yield f"ground resolution: {used['resolution_m']:.3g} m"
    if used["dates"] is not None:
        yield f"dates: {' and '.join(used['dates'])} ({used['dates_source']})"
    if used["aoi"] is not None:
        size = "" if used["aoi_m2"] is None else f", {used['aoi_m2']:,.0f} m2"
        yield f"area of interest: {used['aoi']}{size}"
    if used["temperature"] is not None:
        yield f"probabilities: calibrated, temperature {used['temperature']:g}"
    for mask in used["masks"] or ():
        yield f"mask: {mask}"


def scene_tags(
    pair: OpenDates, forward: Runner, options: SceneOptions, digest: str
) -> dict[str, object]:
    """How the rasters came about: no date, and nothing that does not move a pixel."""
    tags = {
        "TIFFTAG_SOFTWARE": f"adadino {adadino.__version__}",
        **forward.tags(),
        "ADADINO_MODEL": digest[:16],
        "ADADINO_THRESHOLD": options.threshold,
        "ADADINO_TILE": options.tile,
        "ADADINO_OVERLAP": options.overlap,
        "ADADINO_SCALE": options.scale,
        "ADADINO_GSD": options.gsd,
        "ADADINO_MIN_AREA": options.min_area or None,
        "ADADINO_SPLIT": options.split,
        "ADADINO_REGULARISE": options.regularise or None,
        "ADADINO_SHIFT": (pair.shift.dy, pair.shift.dx) if pair.registered else None,
        "ADADINO_BEFORE": Path(pair.names[0]).name,
        "ADADINO_AFTER": Path(pair.names[1]).name,
        **{f"ADADINO_{name.upper()}": v for name, v in scene_used(pair, forward).items()},
    }
    return {name: value for name, value in tags.items() if value is not None}
