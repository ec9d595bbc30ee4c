"""`adadino prepare`: a downloaded dataset to verified tiles."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Annotated, Literal

import typer

from adadino.cli.checks import check_source
from adadino.cli.options import Json, Quiet
from adadino.cli.output import print_json, print_table, progress


def command(
    name: Annotated[
        Literal[
            "levir-cd",
            "levir-cd-plus",
            "whu-cd",
            "sysu-cd",
            "clcd",
            "oscd",
            "second",
            "from-to",
            "folder",
        ],
        typer.Argument(
            help="Which dataset; `folder` for one's own, `from-to` if it has codes. oscd stays "
            "whole."
        ),
    ],
    source: Annotated[Path, typer.Argument(help="The downloaded archive or its folder.")],
    dest: Annotated[Path, typer.Argument(help="Where the tiles go.")],
    tile: Annotated[int, typer.Option(min=8, help="Side of a tile in pixels.")] = 256,
    variant: Annotated[
        str | None,
        typer.Option(
            help="whu-cd: padded, floored, official; levir-cd-plus, second: holdout, whole."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of splits that are drawn.")] = 0,
    strict: Annotated[
        bool, typer.Option("--strict/--no-strict", help="Refuse counts that are not the paper's.")
    ] = True,
    classes: Annotated[
        Path | None, typer.Option(help="from-to: the classes.json that explains the codes.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a finished set.")] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Cut a dataset into tiles, check the counts, write a manifest; run again to resume."""
    check_source(source)
    from adadino.data.prepare.run import prepare

    with progress(f"preparing {name}", quiet=quiet or json) as report:
        manifest = prepare(
            name,
            source,
            dest,
            tile=tile,
            variant=variant,
            seed=seed,
            overwrite=overwrite,
            strict=strict,
            classes=classes,
            progress=report,
        )
    if json:
        print_json(dataclasses.asdict(manifest))
        return
    rows = [
        (split, s.pairs, f"{100 * s.changed:.2f} %", s.fingerprint)
        for split, s in manifest.splits.items()
    ]
    print_table(f"{name} in {dest}", ("split", "tiles", "changed", "fingerprint"), rows)
    for note in manifest.notes:
        typer.echo(note)
    missing = [split for split in ("train", "val") if split not in manifest.splits]
    semantic = name in ("second", "from-to")
    following = _next_of_bands(dest) if name == "oscd" else _next(dest, tile, semantic)
    for line in _missing(name, source, missing) if missing else following:
        typer.echo(line)


def _missing(name: str, source: Path, splits: list[str]) -> list[str]:
    """What to do about splits that training needs and this set does not have."""
    first = splits[0]
    way = f"put some of its pairs into {first}/A, {first}/B and {first}/label"
    if name in ("levir-cd-plus", "second"):
        way = "choose --variant holdout"
    return [
        f"adadino train needs a {' and a '.join(splits)} split, which this set does not have: "
        f"{way}, and prepare {source} again with --overwrite."
    ]


def _next_of_bands(dest: Path) -> list[str]:
    """What to type next where scenes have many bands and stay whole."""
    return [
        "next: adadino train --init tiny --model.bands.names B02,B03,B04,B08,B11 --model.enlarge 2 "
        f"--data.tile 128 --data.roam true --data.cache true --augment.size 128 --data {dest}"
    ]


def _next(dest: Path, tile: int, semantic: bool) -> list[str]:
    """What to type next. Neither command needs a file of the repository."""
    size = "" if tile == 256 else f"--augment.size {-(-tile // 32) * 32} "
    if semantic:
        return [f"next: adadino train --init tiny --classes {size}--data {dest}"]
    where = "" if shutil.which("nvidia-smi") else "on a machine with a GPU, "
    return [
        f"as in the paper, {where}with DINOv3's weights in FILE: adadino train --preset vitl16 "
        f"--model.bscs.k 16 --model.backbone.weights FILE {size}--data {dest}",
        f"next: adadino train --preset tiny --model.backbone.weights tiny {size}--data {dest}",
    ]
