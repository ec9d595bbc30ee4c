"""`adadino serve`: the page and its API."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from adadino.cli.options import Backbone, Device, takes_dataclasses
from adadino.web.settings import Limits, Settings, choose_models

BUNDLED = Path(__file__).parents[1] / "bundled"


@takes_dataclasses()
def command(
    *,
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="A checkpoint, or NAME=CHECKPOINT; may be given several times; bundled by default."
        ),
    ] = None,
    backbone: Backbone = None,
    settings: Settings,
    limits: Limits,
    device: Device = "auto",
) -> None:
    """Serve a page: swipe between the dates, move the threshold, click a polygon, download."""
    from adadino.errors import AdaDINOError

    try:
        from adadino.web.server import serve
    except ImportError as error:
        raise AdaDINOError(
            f"serve needs {error.name}, which is not installed: pip install 'adadino[web]'"
        ) from error
    models = choose_models(model or ["tiny"])
    for choice in models:
        _require(choice.source)
    settings = replace(
        settings,
        jobs=settings.jobs.absolute(),
        models=models,
        backbone=backbone,
        device=device,
        limits=limits,
    )
    serve(settings, lambda line: typer.echo(f"adadino: {line}"))


def _require(source: str) -> None:
    """Refuse a model that is not there, before an address is announced.

    What is there is read by the worker: the page need not wait for torch.
    """
    weights = "model.safetensors"
    places = Path(source), Path(source, weights), BUNDLED / source / weights
    if any(os.path.isfile(path) for path in places):  # noqa: PTH113, names may be too long for pathlib
        return
    from adadino.runtime.runner import check_there

    check_there(source)  # raises, saying what is missing, or fetches what is on the hub
