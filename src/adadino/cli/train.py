"""`adadino train`: a run from a YAML file and dotted overrides."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adadino import schema
from adadino.cli.checks import check_dataset
from adadino.cli.options import Json, Quiet
from adadino.cli.output import print_json

if TYPE_CHECKING:
    from adadino.training.config import RunConfig

Recipe = Annotated[Path | None, typer.Option(help="The run's YAML, e.g. configs/sysu-cd.yaml.")]
Peer = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="A peer instead of AdaDINO, e.g. fc-siam-diff (model.peer)."),
]
Init = Annotated[
    str | None,
    typer.Option(metavar="MODEL", help="Start from a trained model: a folder, a hub id, tiny."),
]
Classes = Annotated[
    bool,
    typer.Option("--classes", help="Also learn what stood there, as the data's classes.json says."),
]
Data = Annotated[Path | None, typer.Option(help="The prepared dataset (data.root).")]

CONTEXT = {"allow_extra_args": True, "ignore_unknown_options": True}


def command(
    context: typer.Context,
    config: Recipe = None,
    model: Peer = None,
    init: Init = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="The run's folder.")] = None,
    data: Data = None,
    classes: Classes = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Start anew where the folder holds another run.")
    ] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Train a model, or go on with an interrupted run: the same command resumes it.

    Every setting can be overridden by its path: --model.bscs.k 6 --train.epochs 50.
    """
    # Before torch is loaded: its C++ side warns of DDP settings that are meant as they are.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    if config is not None:
        schema.read_yaml(config)
    if data is not None:
        check_dataset(data, "train")
    from pytorch_lightning.utilities import rank_zero_only

    from adadino.training.run import train

    run = read_run(context.args, config, model, init, output, data, classes=classes)
    result = train(run, overwrite=overwrite, quiet=quiet or json)
    if getattr(rank_zero_only, "rank", 0):  # one of several processes of a run speaks for all
        return
    if json:
        names = ("folder", "epochs", "best_f1", "resumed", "history")
        print_json({name: getattr(result, name) for name in names})
        return
    kept, said = result.folder / "final", "trained without validation"
    if result.best_f1 is not None:
        score = "F_scd" if run.model.classes.names else "F1"
        kept, said = result.folder / "best", f"best validation {score} {100 * result.best_f1:.2f}"
    typer.echo(f"{said}; everything is in {result.folder}")
    typer.echo(f"next: adadino evaluate {kept} --data {data or 'DIR'} --split test")


def read_run(
    arguments: list[str],
    config: Path | None,
    model: str | None,
    init: str | None,
    output: Path | None,
    data: Path | None,
    *,
    classes: bool = False,
) -> RunConfig:
    """The settings of a run from the options that verbs which train have in common."""
    from adadino.errors import ConfigError
    from adadino.peers import find_peer
    from adadino.training.config import load_run

    overrides = parse_overrides(arguments)
    if model is not None:
        overrides.append(f"model.peer={'null' if model == 'adadino' else model}")
    if init is not None:
        overrides.append(f"init={init}")
    if classes:
        overrides = [*_classes_of(config, data, overrides), *overrides]
    run = load_run(config, overrides, published=True)
    # Not in load_run: a recipe, or a table, gives one preset to all its models.
    given = any(item.startswith("preset=") for item in overrides)
    if given and run.model.peer is not None and not find_peer(run.model.peer).backbone:
        raise ConfigError(f"--preset has no effect on {run.model.peer}: leave it out.")
    if output is not None:
        run = dataclasses.replace(run, output=str(output))
    if data is not None:
        run = dataclasses.replace(run, data=dataclasses.replace(run.data, root=(str(data),)))
    return run


def _classes_of(config: Path | None, data: Path | None, overrides: list[str]) -> list[str]:
    """The classes of the data as settings of the model."""
    import json

    from adadino.data.classes import read_table
    from adadino.data.staging import TABLE
    from adadino.errors import ConfigError

    if data is None:
        said = schema.override({} if config is None else schema.read_yaml(config), overrides)
        roots = (said.get("data") or {}).get("root") or [None]
        data = roots[0] if isinstance(roots, list) else roots
    if data is None:
        raise ConfigError(f"--classes reads {TABLE} of the dataset; name one with --data DIR.")
    found = read_table(Path(data) / TABLE).classes
    return [
        f"model.classes.{name}={json.dumps(list(getattr(found, name)))}"
        for name in ("names", "colours")
    ]


def parse_overrides(arguments: list[str]) -> list[str]:
    """Turn `--a.b 1 --c.d=2` into `a.b=1`, `c.d=2`."""
    overrides, rest = [], list(arguments)
    while rest:
        name = rest.pop(0)
        if not name.startswith("--") or len(name) < 3:
            raise typer.BadParameter(
                f"unexpected argument {name!r}; overrides look like --train.lr 1e-4"
            )
        if "=" not in name:
            if not rest or rest[0].startswith("--"):
                raise typer.BadParameter(
                    f"{name} needs a value; overrides look like --train.lr 1e-4"
                )
            name = f"{name}={rest.pop(0)}"
        overrides.append(name[2:])
    return overrides
