"""`adadino reproduce`: a table of the paper, ours beside the published figures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from adadino.cli.options import Json, Quiet, takes_dataclasses
from adadino.cli.output import print_json, print_table
from adadino.cli.train import CONTEXT, parse_overrides
from adadino.experiments.setting import Setting

if TYPE_CHECKING:
    from adadino.experiments.table import Table

__all__ = ["CONTEXT", "command"]

PaperTable = Literal[
    "table1", "ablation", "efficiency", "prunability", "priors", "batch-size", "robustness"
]
OwnTable = Literal[
    "small-build-up", "small-ablation", "small-why", "peers", "peers-full", "peers-curve",
    "dinov2-build-up", "dinov2-ablation", "dinov2-why", "dinov2-pruning", "dinov2-decoder",
]  # fmt: skip


@takes_dataclasses()
def command(
    *,
    context: typer.Context,
    table: Annotated[
        Literal[PaperTable, OwnTable, "all"],
        typer.Argument(help="Which table; `all` is the paper's seven."),
    ],
    peers: Annotated[
        bool,
        typer.Option("--peers", help="With table1: its peers, in one budget (the table peers)."),
    ] = False,
    row: Annotated[
        list[str] | None,
        typer.Option(help="Only the rows whose names contain this; may be given several times."),
    ] = None,
    setting: Setting,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Where models, results and tables are kept.")
    ] = Setting.out,
    seeds: Annotated[
        str | None,
        typer.Option(
            help="Seeds, e.g. 0,1,2: mean and spread.",
            show_default="0; peers and small-build-up 0,1,2",
        ),
    ] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Train and score what a table of the paper needs; run again to go on where it stopped.

    The recipe is the paper's; --train.epochs 10 and the like change it for every row.
    """
    from adadino.errors import ConfigError
    from adadino.experiments.table import only, quickened
    from adadino.experiments.tables import PAPER_TABLES, TABLES

    if peers and table != "table1":
        raise ConfigError(f"--peers goes with table1, not with {table}; leave it out.")
    given_seeds = None if seeds is None else _numbers(seeds)
    quick, overrides = setting.quick, tuple(parse_overrides(context.args))
    setting = replace(setting, out=output / "quick" if quick else output, overrides=overrides)
    # The other tables want another backbone; with --quick none wants any.
    every = TABLES if quick else PAPER_TABLES
    results = {}
    for name in every if table == "all" else ["peers" if peers else table]:
        chosen = TABLES[name] if row is None else only(TABLES[name], row)
        numbers = given_seeds or ((0,) if quick else chosen.seeds)
        chosen = quickened(chosen) if quick else chosen
        results[name] = _fill(chosen, replace(setting, seeds=numbers), quiet=quiet, json=json)
    if json:
        print_json(results if table == "all" else next(iter(results.values())))


def _fill(table: Table, setting: Setting, *, quiet: bool, json: bool) -> dict[str, Any]:
    """Fill one table, write its files and show it; return what --json says of it."""
    from adadino.experiments import report, runner

    def say(line: str) -> None:
        if not (quiet or json):
            typer.echo(line, err=True)

    note = report.caption(table, setting.seeds, jobs=setting.jobs, quick=setting.quick)
    filled = runner.reproduce(table, setting, say)
    paths = report.write(table, filled, setting.out, note=note)
    if not json:
        print_table(table.title, report.header(table), report.lines(table, filled), note=note)
        typer.echo(f"saved: {', '.join(str(path) for path in paths)}")
    return {"rows": [item.as_dict() for item in filled], "outputs": paths, "note": note}


def _numbers(seeds: str) -> tuple[int, ...]:
    from adadino.errors import ConfigError

    try:
        numbers = tuple(int(s) for s in seeds.split(","))
    except ValueError as error:
        raise ConfigError(f"--seeds is {seeds!r}, must be numbers: 0,1,2.") from error
    if len(set(numbers)) < len(numbers):
        raise ConfigError(f"--seeds is {seeds!r}: a seed twice is one seed; name each once.")
    return numbers
