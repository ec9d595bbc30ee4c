"""`adadino evaluate`: scores of a model on a split, with the protocol that made them."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from adadino.cli.checks import check_dataset, check_model
from adadino.cli.options import Backbone, Device, Json, Overwrite, Quiet
from adadino.cli.output import json_text, print_json, print_table, progress
from adadino.errors import ConfigError, WriteError
from adadino.files import write_atomic
from adadino.scene.options import SceneOptions

if TYPE_CHECKING:
    from adadino.data.folder import PairFolder
    from adadino.evaluation import Evaluation, Protocol
    from adadino.model.detector import Detector

FILES = ("scores.json", "tiles.csv", "pr.png")
SCORES = ("precision", "recall", "f1", "iou", "oa", "kappa")


def command(
    model: Annotated[
        list[str],
        typer.Argument(help="A checkpoint folder, e.g. runs/sysu/best; several side by side."),
    ],
    data: Annotated[Path, typer.Option(help="A prepared dataset, or a folder with A, B, label.")],
    split: Annotated[
        str | None, typer.Option(help="train, val or test; none for a folder without splits.")
    ] = "test",
    backbone: Backbone = None,
    protocol: Annotated[
        Literal["default", "batch-size", "ordering", "swap"],
        typer.Option(help="App. B: batch sizes 1/4/8/16, five orders, or swapped dates."),
    ] = "default",
    robustness: Annotated[
        bool, typer.Option("--robustness", help="Score grey, hazy, coarse, shifted... copies too.")
    ] = False,
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
    overwrite: Overwrite = False,
    device: Device = "auto",
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Score models: one confusion matrix over all pixels of the split for each."""
    split = None if split in ("none", "") else split
    if robustness and protocol != "default":
        raise ConfigError("--robustness does not go with --protocol; leave one out.")
    rows = "robustness" if robustness else protocol
    if len(model) > 1 and (rows != "default" or output is not None):
        raise ConfigError(
            "--robustness, --protocol and --output are for one model; leave them out."
        )
    _check(model, data, split, None if overwrite else output)
    from adadino.checkpoint import load
    from adadino.evaluation import evaluate
    from adadino.runtime.devices import choose_device

    cases = _cases(rows, batch=batch, k=k, threshold=threshold)
    where = choose_device(device)
    networks = {source: load(source, backbone=backbone, device=where) for source in model}
    labelled = _labelled(networks, data, split, tile)
    dataset = next(iter(labelled.values()))
    if robustness and dataset.bands is not None:
        raise ConfigError(
            "--robustness disturbs red, green and blue, and this model takes other bands; leave it "
            "out."
        )
    if split is not None:
        _warn_of_leakage(data, split, dataset)
    results: list[dict[str, Any]] = []
    for source, (name, case) in itertools.product(networks, cases.items()):
        title = name if len(networks) == 1 else source
        with progress(title, quiet=quiet or json) as report:
            scores = evaluate(
                networks[source], labelled[source], case, device=where, progress=report
            )
        results.append({"name": title, **scores.as_dict()})
        if output is not None and len(results) == 1:
            results[0] |= _write(scores, output, suggest=split == "val")
    whole = results[0] if len(results) == 1 else {**results[0], "rows": results}
    if output is not None:
        said = {"model": model[0], "data": str(data), "split": split, **whole}
        write_atomic(output / "scores.json", json_text(said) + "\n")
    if json:
        print_json(whole)
        return
    _show(f"{' and '.join(model)} on {data}{'/' + split if split else ''}", results, rows)
    _show_classes(results)
    if output is not None:
        typer.echo(_threshold(results[0].get("best_threshold"), split))


def _labelled(
    networks: dict[str, Detector], data: Path, split: str | None, tile: int | None
) -> dict[str, PairFolder]:
    """The pairs for each model: in the models' bands, and with the classes that a model tells.

    Raises:
        ConfigError: The models take different bands.
    """
    from adadino.bands import BandsConfig
    from adadino.data.folder import PairFolder

    learnt = [network.config.bands for network in networks.values() if not network.fits]
    first, *others = learnt or [BandsConfig()]
    if any(other != first for other in others):
        raise ConfigError(
            f"the models take different bands ({first.text}; {others[0].text}); score them one by "
            "one."
        )
    plain = PairFolder(data, split, tile=tile, bands=first)
    return {
        source: PairFolder(data, split, tile=tile, bands=first, classes=network.config.classes)
        if network.config.classes.names and plain.pairs[0].classes is not None
        else plain
        for source, network in networks.items()
    }


def _check(models: list[str], data: Path, split: str | None, output: Path | None) -> None:
    """Refuse what is wrong before torch is loaded; `output` is None if it may be replaced."""
    for path in () if output is None else (output / name for name in FILES):
        if path.exists():
            raise WriteError(f"{path} exists; give another --output, or --overwrite.")
    for model in models:
        check_model(model)
    check_dataset(data, split)


def _cases(
    protocol: str, *, batch: int | None, k: int | None, threshold: float
) -> dict[str, Protocol]:
    """The protocols to score under, by name."""
    from adadino.evaluation import PROTOCOLS, Protocol

    if protocol == "batch-size" and batch is not None:
        raise ConfigError("--batch does not go with --protocol batch-size; leave one out.")
    return {
        name: dataclasses.replace(case, batch=batch or case.batch, k=k, threshold=threshold)
        for name, case in PROTOCOLS.get(protocol, [("default", Protocol())])
    }


def _write(scores: Evaluation, output: Path, *, suggest: bool) -> dict[str, float]:
    """Write scores by tile and the curve; return the best threshold if it is to be suggested."""
    from adadino.evaluation import pr_picture

    scores.write_rows(output / "tiles.csv")
    best = pr_picture(scores, output / "pr.png", suggest=suggest)
    return {} if best is None else {"best_threshold": best}


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


def _show_classes(results: list[dict[str, Any]]) -> None:
    """Print the scores of what changed into what, where there are any."""
    rows = [
        (one["name"], *(f"{100 * value:.2f}" for value in one["semantic"].values()))
        for one in results
        if "semantic" in one
    ]
    if rows:
        note = "one matrix over both dates; Score = 0.3 mIoU + 0.7 SeK"
        print_table(
            "what changed into what", ("", "mIoU", "SeK", "F_scd", "Score"), rows, note=note
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
