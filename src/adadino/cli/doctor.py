"""`adadino doctor`: what this machine has, and what each part means for the user."""

from __future__ import annotations

import dataclasses

import typer

from adadino.cli.options import Json
from adadino.cli.output import print_json


def command(json: Json = False) -> None:
    """Check Python, torch, GPU, memory, GDAL, extras and weights; exit code 0 if usable."""
    from adadino import __version__
    from adadino.cli.doctor_checks import examine, usable

    checks = examine()
    works = usable(checks)
    if json:
        print_json(
            {
                "version": __version__,
                "usable": works,
                "checks": [dataclasses.asdict(check) for check in checks],
            }
        )
    else:
        typer.echo(f"adadino {__version__}")
        for check in checks:
            typer.echo(f"{check.state:<8}{check.name}: {check.found}")
            typer.echo(f"        {check.meaning}")
            if check.remedy:
                typer.echo(f"        -> {check.remedy}")
        broken = [check.name for check in checks if check.state == "problem"]
        typer.echo("usable" if works else f"not usable: {', '.join(broken)}")
    if not works:
        raise typer.Exit(1)
