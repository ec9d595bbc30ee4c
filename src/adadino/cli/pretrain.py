"""`adadino pretrain`: a small backbone of one's own from a folder of images."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from adadino.cli.options import Json, Quiet
from adadino.cli.output import print_json, progress
from adadino.cli.train import CONTEXT, parse_overrides
from adadino.errors import DataError

__all__ = ["CONTEXT", "command"]


def command(
    context: typer.Context,
    images: Annotated[
        list[Path] | None, typer.Option(help="A folder of images; may be given several times.")
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="The run's folder.")] = None,
    config: Annotated[Path | None, typer.Option(help="The run's YAML.")] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Start anew where the folder holds another run.")
    ] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Pretrain a small backbone on unlabelled images, by distillation from EfficientNet-lite0.

    With --init WEIGHTS a pretrained one goes on, and a slow copy of itself is its teacher.
    Every setting can be overridden by its name: --steps 8000 --batch 64 --probe DIR.
    """
    for folder in images or ():
        if not folder.exists():
            raise DataError(
                f"there are no images in {folder}; give --images DIR, or --synthetic N."
            )
    from adadino import schema
    from adadino.training.pretrain.config import PretrainConfig
    from adadino.training.pretrain.run import pretrain

    data = schema.read_yaml(config) if config is not None else {}
    data = schema.override(data, parse_overrides(context.args))
    if images:
        data["images"] = [str(folder) for folder in images]
    if output is not None:
        data["output"] = str(output)
    with progress("pretraining", quiet=quiet or json) as report:
        settings = schema.build(PretrainConfig, data)
        result = pretrain(settings, overwrite=overwrite, report=report)
    last = result.history[-1]
    if json:
        print_json({"weights": result.weights, "history": result.history})
        return
    typer.echo(f"loss {last['loss']:.4f} after {last['step']:.0f} steps; wrote {result.weights}")
    patch = "" if settings.patch is None else f" --model.backbone.patch {settings.patch}"
    typer.echo(
        f"next: adadino train --preset {settings.preset}{patch} --model.backbone.weights "
        f"{result.weights} --data DIR"
    )
