"""An adaptation: a judged map makes a new model, which predicts the pair again.

It runs confined, as every job does. What it needs lies in its own folder: a copy of the images, and
of the review as it was when somebody asked. A server that ended goes on from the finished features
and folds.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch

from adadino.errors import InputError
from adadino.training.adapt.judged import judged_tiles
from adadino.training.adapt.options import AdaptOptions
from adadino.training.adapt.run import adapt
from adadino.web.door import open_foreign
from adadino.web.jobs.models import JUDGED, MODEL
from adadino.web.jobs.predict import Pace, predict_job
from adadino.web.jobs.records import AdaptedFound
from adadino.web.jobs.tasks import Held, Tell

MOST_TILES = 128
"""More would take the memory and the hours of everybody else's jobs."""


def adapt_job(task: dict[str, Any], held: Held, tell: Tell) -> dict[str, Any]:
    """Adapt, then predict with the new model, or with the old one if that is kept."""
    folder = Path(task["folder"])
    model = folder / MODEL
    report = model / "report.json"
    torch.set_num_threads(held.threads)
    if not report.is_file():  # else a former worker had come further
        tiles = _tiles(task, folder)
        options = AdaptOptions(**held.setup["adapt"])
        adapt(
            task["weights"] or task["source"], tiles, model, options,
            backbone=held.setup["backbone"], overwrite=(model / "model.safetensors").exists(),
            progress=Pace(tell, "adapting"),
        )  # fmt: skip
        shutil.rmtree(tiles)
    figures = _figures(json.loads(report.read_text(encoding="utf-8")))
    weights = str(model) if figures.kept == "new" else task["weights"]
    return predict_job(task | {"weights": weights}, held, tell, {"adapted": figures.model_dump()})


def _tiles(task: dict[str, Any], folder: Path) -> Path:
    """The judged tiles; written again by every worker, which takes a moment."""
    scale = task["scale"]
    tiles = judged_tiles(
        folder / JUDGED, task["before"], task["after"], folder / MODEL, bands=task["bands"],
        scale=None if scale is None else (scale[0], scale[1]), open_file=open_foreign,
    )  # fmt: skip
    count = len(list((tiles / "label").iterdir()))
    if count > MOST_TILES:
        raise InputError(
            f"the review has {count} tiles, and the server adapts with at most {MOST_TILES}; "
            "download the verdicts and run adadino adapt."
        )
    return tiles


def _figures(said: dict[str, Any]) -> AdaptedFound:
    """What the page tells of an adaptation; its report names folders of the server."""
    held, kept = said["held_out"], said["kept"]
    between = held["f1_difference"]
    old, new = held["old"]["f1"], held["new"]["f1"]
    found = "better" if held["better"] else "not better"
    said_of = "" if held["better"] else f": the {kept} one is kept"
    return AdaptedFound(
        kept=kept, tiles=said["tiles"], folds=said["folds"], old_f1=old, new_f1=new,
        difference=between["value"], low=between["low"], high=between["high"],
        seconds=round(said["seconds"], 1), sentence=f"The new model is {found}{said_of}.",
    )  # fmt: skip
