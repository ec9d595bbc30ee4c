"""`adadino serve`: the page and its API."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from adadino.cli.options import Backbone, Device
from adadino.runtime.protocol import EngineName
from adadino.scene.options import SceneOptions
from adadino.web.settings import Limits, Settings, choose_models, default_jobs_folder

GB = 2**30
BUNDLED = Path(__file__).parents[1] / "bundled"


def command(
    host: Annotated[str, typer.Option(help="Address; others than loopback need --token.")] = (
        Settings.host
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 for any free one.")] = (
        Settings.port
    ),
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="A checkpoint, or NAME=CHECKPOINT; may be given several times; bundled by default."
        ),
    ] = None,
    backbone: Backbone = None,
    data: Annotated[Path | None, typer.Option(help="Folder of images to choose from.")] = None,
    jobs: Annotated[
        Path | None, typer.Option(help="Where jobs are kept; a folder of the user by default.")
    ] = None,
    token: Annotated[
        list[str] | None,
        typer.Option(
            help="Secret that clients must send, or NAME=SECRET; may be given several times. "
            "Also a line each in ADADINO_TOKEN."
        ),
    ] = None,
    trusted_proxy: Annotated[
        list[str] | None,
        typer.Option(help="Address or network of a proxy whose X-Forwarded-For is believed."),
    ] = None,
    basemap: Annotated[
        str | None, typer.Option(help="Web Mercator tiles to show below: https://.../{z}/{x}/{y}.")
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="A name the server may be reached by, behind a proxy.")
    ] = None,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(help="Another site whose pages may use the API: https://maps.example."),
    ] = None,
    max_upload: Annotated[float, typer.Option(min=0.001, help="Most GB of one job's files.")] = (
        Limits.upload_bytes / GB
    ),
    max_pixels: Annotated[
        float, typer.Option(min=0.1, help="Most million pixels of one image.")
    ] = Limits.pixels / 1e6,
    max_job_time: Annotated[
        float, typer.Option(min=0.01, help="Most hours of one job; a longer one is refused.")
    ] = Limits.job_s / 3600,
    max_job_memory: Annotated[float, typer.Option(min=0.5, help="Most GB of one job.")] = (
        Limits.job_memory / GB
    ),
    keep_days: Annotated[
        float, typer.Option(min=0, help="Days after which jobs are removed.")
    ] = Limits.keep_days,
    keep_size: Annotated[
        float, typer.Option(min=0, help="Most GB of all jobs; then uploads are refused.")
    ] = Limits.keep_bytes / GB,
    device: Device = "auto",
    engine: Annotated[
        EngineName, typer.Option(help="Inference engine: auto is bf16 on a GPU, else off.")
    ] = SceneOptions.engine,
    demo: Annotated[bool, typer.Option("--demo/--no-demo", help="Open on a demo pair.")] = (
        Settings.demo
    ),
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
    settings = Settings(
        host=host,
        port=port,
        models=models,
        backbone=backbone,
        data=data,
        jobs=(jobs or default_jobs_folder()).absolute(),
        tokens=tuple(token or os.environ.get("ADADINO_TOKEN", "").splitlines()),
        trusted_proxies=tuple(trusted_proxy or ()),
        basemap=basemap,
        allowed_hosts=tuple(allow_host or ()),
        allowed_origins=tuple(allow_origin or ()),
        device=device,
        engine=engine,
        demo=demo,
        limits=Limits(
            upload_bytes=int(max_upload * GB),
            pixels=int(max_pixels * 1e6),
            job_s=max_job_time * 3600,
            job_memory=int(max_job_memory * GB),
            keep_days=keep_days,
            keep_bytes=int(keep_size * GB),
        ),
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
