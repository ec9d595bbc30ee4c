"""`adadino convert`: a checkpoint that a peer's authors released as one of ours."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from adadino.cli.options import Json, Overwrite
from adadino.cli.output import print_json


def command(
    peer: Annotated[
        str,
        typer.Argument(
            help="tinycd, bit, changeformer, snunet, changemamba, rs-mamba, cdmamba, changetitans, "
            "fc-ef, fc-siam-conc or fc-siam-diff; or sam-distance, from mobile_sam.pt."
        ),
    ],
    file: Annotated[Path, typer.Argument(help="The authors' file, e.g. levir_best.pth.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The checkpoint folder.")],
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Turn a peer's released checkpoint into a folder that every command takes."""
    from adadino.checkpoint import save
    from adadino.errors import WriteError
    from adadino.peers.released import load_released
    from adadino.source import WEIGHTS

    if (output / WEIGHTS).exists() and not overwrite:
        raise WriteError(f"{output / WEIGHTS} exists; give another --output, or --overwrite.")
    model = load_released(peer, file)
    folder = save(model, output)
    if json:
        print_json({"folder": folder, "peer": peer, **model.ancestors[0]})
        return
    typer.echo(f"{file} is now {folder}: {peer}, {model.ancestors[0]['digest']}")
    typer.echo(f"next: adadino evaluate {folder} --data DIR --split test")
