"""`adadino evaluate`: scores of a model on a split, with the protocol that made them."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from adadino.cli.output import Json, Quiet, print_json, print_table, progress

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
        Path | None, typer.Option("-o", "--output", help="Folder for per-tile CSV and PR curve.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, mps.")] = "auto",
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Score a model: one confusion matrix over all pixels of the split."""
    from adadino.data.folder import PairFolder
    from adadino.devices import choose_device
    from adadino.errors import ConfigError
    from adadino.evaluation import PROTOCOLS, Protocol, evaluate, pr_picture
    from adadino.model.checkpoint import load

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
            best = pr_picture(scores, output / "pr.png")
            if split == "val":
                results[-1]["best_threshold"] = best
    first = results[0]
    if json:
        print_json(first if protocol == "default" else {**first, "rows": results})
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
        f"them, threshold {threshold}, data {first['fingerprint']}",
    )
    if "best_threshold" in first:
        typer.echo(
            f"threshold of the highest F1 on this validation split: {first['best_threshold']}"
        )
    elif output is not None:
        typer.echo(
            "no threshold is suggested: choose it on the validation split, never on this one"
        )
