"""What a scene's probabilities depend on, and what its rasters say of themselves."""

from __future__ import annotations

from pathlib import Path

import adadino
from adadino.domain import Domain
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


def scene_used(pair: OpenDates, domain: Domain | None) -> dict[str, object]:
    """What was made of the images, as JSON holds it; None where there is nothing to say."""
    reader, moments, interest = pair.reader, pair.moments, pair.reader.interest
    stretch, fit = reader.stretch, resolution_fit(reader, domain, any_too=True)
    return {
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
        **{f"ADADINO_{name.upper()}": v for name, v in scene_used(pair, forward.domain).items()},
    }
    return {name: value for name, value in tags.items() if value is not None}
