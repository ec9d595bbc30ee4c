"""`adadino evaluate`: scores of a model on a split, with the protocol that made them."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from adadino.cli.output import Json, Quiet, json_text, print_json, print_table, progress

FILES = ("scores.json", "tiles.csv", "pr.png")
SCORES = ("precision", "recall", "f1", "iou", "oa", "kappa")


def command(
    model: Annotated[str, typer.Argument(help="A checkpoint folder, e.g. runs/sysu/best.")],
    data: Annotated[Path, typer.Option(help="A prepared dataset, or a folder with A, B, label.")],
    split: Annotated[
        str | None, typer.Option(help="train, val or test; none for a folder without splits.")
    ] = "test",
    backbone: Annotated[
        str | None, typer.Option(help="Backbone weights, if not where the model says.")
    ] = None,
    protocol: Annotated[
        Literal["default", "batch-size", "ordering", "swap"],
        typer.Option(help="App. B: batch sizes 1/4/8/16, five orders, or swapped dates."),
    ] = "default",
    batch: Annotated[int | None, typer.Option(min=1, help="Pairs per batch; 16.")] = None,
    k: Annotated[int | None, typer.Option(help="FFN chunks to execute.")] = None,
    tile: Annotated[int | None, typer.Option(help="Score tiles of this side.")] = None,
    threshold: Annotated[float, typer.Option(help="Probability from which a pixel changed.")] = 0.5,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Folder for scores, per-tile CSV and PR curve."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what exists.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, mps.")] = "auto",
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Score a model: one confusion matrix over all pixels of the split."""
    from adadino.checkpoint import load
    from adadino.data.folder import PairFolder
    from adadino.errors import ConfigError, WriteError
    from adadino.evaluation import PROTOCOLS, Protocol, evaluate, pr_picture
    from adadino.files import write_atomic
    from adadino.runtime.devices import choose_device

    for path in () if output is None or overwrite else (output / name for name in FILES):
        if path.exists():
            raise WriteError(f"{path} exists; give another --output, or --overwrite.")
    where = choose_device(device)
    network = load(model, backbone=backbone, device=where)
    split = None if split in ("none", "") else split
    dataset = PairFolder(data, split, tile=tile)
    if protocol == "batch-size" and batch is not None:
        raise ConfigError("--batch does not go with --protocol batch-size; leave one out.")
    cases = [("default", Protocol())] if protocol == "default" else PROTOCOLS[protocol]
    results: list[dict[str, Any]] = []
    for name, case in cases:
        case = dataclasses.replace(case, batch=batch or case.batch, k=k, threshold=threshold)
        with progress(name, quiet=quiet or json) as report:
            scores = evaluate(network, dataset, case, device=where, progress=report)
        results.append({"name": name, **scores.as_dict()})
        if output is not None and name == cases[0][0]:
            scores.write_rows(output / "tiles.csv")
            best = pr_picture(scores, output / "pr.png", suggest=split == "val")
            if best is not None:
                results[-1]["best_threshold"] = best
    first = results[0]
    whole = first if protocol == "default" else {**first, "rows": results}
    if output is not None:
        said = {"model": model, "data": str(data), "split": split, **whole}
        write_atomic(output / "scores.json", json_text(said) + "\n")
    if json:
        print_json(whole)
        return
    print_table(
        f"{model} on {data}{'/' + split if split else ''}",
        ("", *(s.upper() if s != "kappa" else s for s in SCORES), "F1 - first"),
        [
            (
                r["name"],
                *(f"{100 * r[s]:.2f}" for s in SCORES),
                f"{100 * (r['f1'] - first['f1']):+.2f}" if r is not first else "",
            )
            for r in results
        ],
        note=f"{first['pairs']} tiles of {first['tile']} pixels, one confusion matrix over all of "
        f"them, {_how(first['protocol'], protocol)}threshold {threshold}, data "
        f"{first['fingerprint']}",
    )
    if "best_threshold" in first:
        typer.echo(
            f"threshold of the highest F1 on this validation split: {first['best_threshold']}"
        )
    elif output is not None and split == "val":
        typer.echo("no threshold is suggested: nothing changed in this split")
    elif output is not None:
        typer.echo(
            "no threshold is suggested: choose it on the validation split, never on this one"
        )


def _how(said: dict[str, Any], protocol: str) -> str:
    """How the batches were made, but for what a protocol's rows tell apart themselves."""
    parts = [] if protocol == "batch-size" else [f"batches of {said['batch']}"]
    parts += [] if protocol == "ordering" else [f"pairs {said['order']}"]
    parts += [] if said["k"] is None else [f"k = {said['k']}"]
    return "".join(f"{part}, " for part in parts)
