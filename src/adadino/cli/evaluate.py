"""`adadino evaluate`: scores of a model on a split, with the protocol that made them."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from adadino.cli.options import Json, Quiet
from adadino.cli.output import json_text, print_json, print_table, progress
from adadino.scene.options import SceneOptions

if TYPE_CHECKING:
    from adadino.data.folder import PairFolder

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
    batch: Annotated[
        int | None, typer.Option(min=1, help="Pairs per batch; 16 by default.")
    ] = None,
    k: Annotated[int | None, typer.Option(help="FFN chunks to execute.")] = None,
    tile: Annotated[int | None, typer.Option(help="Score tiles of this side.")] = None,
    threshold: Annotated[
        float, typer.Option(help="Probability from which a pixel changed.")
    ] = SceneOptions.threshold,
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
    if split is not None:
        _warn_of_leakage(data, split, dataset)
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
    whole = results[0] if protocol == "default" else {**results[0], "rows": results}
    if output is not None:
        said = {"model": model, "data": str(data), "split": split, **whole}
        write_atomic(output / "scores.json", json_text(said) + "\n")
    if json:
        print_json(whole)
        return
    _show(f"{model} on {data}{'/' + split if split else ''}", results, protocol)
    if output is not None:
        typer.echo(_threshold(results[0].get("best_threshold"), split))


def _warn_of_leakage(data: Path, split: str, dataset: PairFolder) -> None:
    """Warn if another split of the dataset is the one that is scored."""
    from adadino.data.folder import SPLITS, find_pairs, warn_of_leakage
    from adadino.errors import DataError

    for other in SPLITS:
        if other != split and (data / other).is_dir():
            with contextlib.suppress(DataError):  # a broken split that nobody asked for
                warn_of_leakage({other: find_pairs(data, other), split: dataset.pairs})


def _show(title: str, results: list[dict[str, Any]], protocol: str) -> None:
    """Print the scores as a table, the protocol below it."""
    first = results[0]
    rows = [
        (
            one["name"],
            *(f"{100 * one[score]:.2f}" for score in SCORES),
            f"{100 * (one['f1'] - first['f1']):+.2f}" if one is not first else "",
        )
        for one in results
    ]
    print_table(
        title,
        ("", *(s.upper() if s != "kappa" else s for s in SCORES), "F1 - first"),
        rows,
        note=f"{first['pairs']} tiles of {first['tile']} pixels, one confusion matrix over all of "
        f"them, {_how(first['protocol'], protocol)}threshold {first['protocol']['threshold']}, "
        f"data {first['fingerprint']}",
    )


def _threshold(best: float | None, split: str | None) -> str:
    """Which threshold to use, or why none is suggested."""
    if best is not None:
        return f"threshold of the highest F1 on this validation split: {best}"
    if split == "val":
        return "no threshold is suggested: nothing changed in this split"
    return "no threshold is suggested: choose it on the validation split, never on this one"


def _how(said: dict[str, Any], protocol: str) -> str:
    """How the batches were made, but for what a protocol's rows tell apart themselves."""
    parts = [] if protocol == "batch-size" else [f"batches of {said['batch']}"]
    parts += [] if protocol == "ordering" else [f"pairs {said['order']}"]
    parts += [] if said["k"] is None else [f"k = {said['k']}"]
    return "".join(f"{part}, " for part in parts)
