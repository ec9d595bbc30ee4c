"""`adadino doctor`: what this machine has, and what each part means for the user.

- Every check answers, whatever is missing or broken. So nothing beyond the standard library is
  imported outside the check that is about it.
- A missing extra is no problem. Only what stops every command is one: Python, torch, the bundled
  model.
- Nothing is fetched, nothing stays on disk.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

import typer

from adadino.cli.options import Json
from adadino.cli.output import print_json


@dataclasses.dataclass(frozen=True)
class Check:
    """One line of the report."""

    name: str
    state: Literal["ok", "note", "problem"]
    found: str
    meaning: str
    """What it means for the user."""
    remedy: str = ""
    """What to type or change; empty if nothing needs to be done."""


def command(json: Json = False) -> None:
    """Check Python, torch, GPU, memory, GDAL, extras and weights; exit code 0 if usable."""
    from adadino import __version__

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


def examine() -> list[Check]:
    """Look at everything, and run the bundled model on a small pair."""
    from adadino.cli.doctor.machine import (
        check_folders,
        check_gpu,
        check_memory,
        check_processors,
        check_python,
        check_server,
    )
    from adadino.cli.doctor.packages import (
        check_bundled,
        check_dinov3,
        check_extras,
        check_gdal,
        check_torch,
    )

    torch = check_torch()
    return [
        check_python(),
        torch,
        *([] if torch.state == "problem" else [check_gpu()]),
        check_processors(),
        check_memory(),
        check_gdal(),
        *check_extras(),
        check_bundled(run=torch.state != "problem"),
        check_dinov3(),
        check_server(),
        *check_folders(compiled=torch.state != "problem"),
    ]


def usable(checks: list[Check]) -> bool:
    """Whether adadino can do anything here."""
    return all(check.state != "problem" for check in checks)
