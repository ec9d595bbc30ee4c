"""`adadino serve`: the page and its API."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

import typer

BUNDLED = Path(__file__).parents[1] / "bundled"


def command(
    host: Annotated[str, typer.Option(help="Address; others than loopback need --token.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 for any free one.")] = 8000,
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="A checkpoint, or NAME=CHECKPOINT; may be given several times; bundled by default."
        ),
    ] = None,
    backbone: Annotated[
        str | None, typer.Option(help="Backbone weights, if not where the model says.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Folder of images to choose from.")] = None,
    jobs: Annotated[
        Path | None, typer.Option(help="Where jobs are kept; a folder of the user by default.")
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(help="Secret that clients must send.", envvar="ADADINO_TOKEN"),
    ] = None,
    basemap: Annotated[
        str | None, typer.Option(help="Web Mercator tiles to show below: https://.../{z}/{x}/{y}.")
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="A name the server may be reached by, behind a proxy.")
    ] = None,
    max_upload: Annotated[float, typer.Option(min=0.001, help="Of one job's files, GB.")] = 4.0,
    max_pixels: Annotated[float, typer.Option(min=0.1, help="Of one image, million.")] = 1000.0,
    keep_days: Annotated[float, typer.Option(min=0, help="Older jobs are removed.")] = 30.0,
    keep_size: Annotated[float, typer.Option(min=0, help="All jobs together, GB.")] = 50.0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, mps.")] = "auto",
    engine: Annotated[
        Literal["auto", "off", "bf16", "fp8", "int8"],
        typer.Option(help="Inference engine: auto is bf16 on a GPU, off elsewhere."),
    ] = "auto",
    demo: Annotated[bool, typer.Option("--demo/--no-demo", help="Open on a demo pair.")] = True,
) -> None:
    """Serve a page: swipe between the dates, move the threshold, click a polygon, download."""
    from adadino.errors import AdaDINOError

    try:
        from adadino.web.server import serve
        from adadino.web.settings import Limits, Settings, choose_models, default_jobs_folder
    except ImportError as error:
        raise AdaDINOError(
            f"serve needs {error.name}, which is not installed: pip install 'adadino[web]'"
        ) from error
    models = choose_models(model or ["tiny"])
    for choice in models:
        _require(choice.source)
    settings = Settings(
        host=host,
        port=port,
        models=models,
        backbone=backbone,
        data=data,
        jobs=(jobs or default_jobs_folder()).absolute(),
        token=token,
        basemap=basemap,
        allowed_hosts=tuple(allow_host or ()),
        device=device,
        engine=engine,
        demo=demo,
        limits=Limits(
            upload_bytes=int(max_upload * 2**30),
            pixels=int(max_pixels * 1e6),
            keep_days=keep_days,
            keep_bytes=int(keep_size * 2**30),
        ),
    )
    serve(settings, lambda address: typer.echo(f"adadino: serving {address} (Ctrl-C ends it)"))


def _require(source: str) -> None:
    """Refuse a model that is not there, before an address is announced.

    What is there is read by the worker: the page need not wait for torch.
    """
    weights = "model.safetensors"
    places = Path(source), Path(source, weights), BUNDLED / source / weights
    if any(os.path.isfile(path) for path in places):  # noqa: PTH113, names may be too long for pathlib
        return
    from adadino.runtime.exported import ExportedModel, is_exported

    if is_exported(source):
        ExportedModel(source, device="cpu")  # raises, saying what is missing
    from adadino.checkpoint import read_settings

    read_settings(source)  # raises the same, or fetches what is on the hub
