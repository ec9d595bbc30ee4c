"""`adadino study`: k-fold cross-validation, or F1 against the number of labels."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from adadino.cli.options import Device, Json, Quiet
from adadino.cli.output import print_json, print_table
from adadino.cli.train import CONTEXT, Data, Init, Peer, Recipe, read_run

__all__ = ["CONTEXT", "command"]


def command(
    context: typer.Context,
    output: Annotated[Path, typer.Option("-o", "--output", help="The study's folder.")],
    folds: Annotated[
        int | None, typer.Option(min=2, help="Train on all parts of the scenes but one, in turn.")
    ] = None,
    labels: Annotated[
        str | None, typer.Option(help="Train on so many tiles each: 16,64,256.")
    ] = None,
    seeds: Annotated[str, typer.Option(help="With --labels, the runs at each number.")] = "0",
    config: Recipe = None,
    model: Peer = None,
    init: Init = None,
    data: Data = None,
    device: Device = "auto",
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Train several runs for one question; the same command finishes what was interrupted.

    Every setting of a run can be given by its path, as to `adadino train`.
    """
    from adadino.errors import ConfigError
    from adadino.training.study import cross_validate, label_curve

    if (folds is None) == (labels is None):
        raise ConfigError("a study has one question: give --folds or --labels.")
    run = read_run(context.args, config, model, init, output, data)

    def say(line: str) -> None:
        if not (quiet or json):
            print(line, file=sys.stderr, flush=True)

    if folds is not None:
        said = cross_validate(run, folds, say=say, device=device)
        if json:
            print_json(said)
        else:
            _show_folds(said)
        return
    counts, numbers = _numbers("--labels", str(labels)), _numbers("--seeds", seeds)
    said = label_curve(run, counts, numbers, say=say, device=device)
    if json:
        print_json(said)
        return
    rows = [(row["tiles"], f"{100 * row['f1']:.2f}") for row in said["curve"]]
    print_table(f"{len(numbers)} runs for each number", ("tiles", "F1 of the last epoch"), rows)
    typer.echo(f"rows and picture: {output / 'study.csv'}, {output / 'study.png'}")


def _show_folds(said: dict[str, Any]) -> None:
    scored = [*said["rows"], {"fold": "all pixels", **said["pooled"]}]
    print_table(
        "each fold scored by the run that did not see it",
        ("fold", "F1", "IoU"),
        [(row["fold"], f"{100 * row['f1']:.2f}", f"{100 * row['iou']:.2f}") for row in scored],
        note=f"mean F1 {100 * said['f1']:.2f}, deviation over folds "
        f"{100 * said['f1_deviation']:.2f}",
    )


def _numbers(option: str, text: str) -> tuple[int, ...]:
    from adadino.errors import ConfigError

    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts) or len(set(parts)) < len(parts):
        raise ConfigError(f"{option} is {text!r}, must be different numbers: 16,64,256.")
    return tuple(int(part) for part in parts)
