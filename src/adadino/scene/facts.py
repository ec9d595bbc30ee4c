"""What a scene's probabilities depend on, and what its rasters say of themselves."""

from __future__ import annotations

from pathlib import Path

import adadino
from adadino.runtime.protocol import Runner
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
        "version": ANSWERS,
    }


def option_facts(options: SceneOptions) -> dict[str, object]:
    """The settings that move a probability."""
    names = ("tile", "overlap", "selection", "sample", "engine", "bands", "scale", "register")
    batch = options.batch if options.selection == "batch" else None
    return {**{name: getattr(options, name) for name in names}, "batch": batch}


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
        "ADADINO_BANDS": options.bands,
        "ADADINO_SCALE": options.scale,
        "ADADINO_SHIFT": (pair.shift.dy, pair.shift.dx) if pair.registered else None,
        "ADADINO_BEFORE": Path(pair.names[0]).name,
        "ADADINO_AFTER": Path(pair.names[1]).name,
    }
    return {name: value for name, value in tags.items() if value is not None}
