"""`adadino`: registers the verbs and turns our errors into one sentence and exit code 1."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import typer

from adadino import __version__
from adadino.errors import AdaDINOError

app = typer.Typer(
    name="adadino",
    help="Find what changed between two co-registered images of one place.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(value: bool) -> None:
    if value:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    pass


def _register() -> None:
    for verb in ("demo", "info", "prepare", "train", "evaluate"):
        module = import_module(f"adadino.cli.{verb}")
        command: Callable[..., Any] = module.command
        app.command(verb, context_settings=getattr(module, "CONTEXT", None))(command)


_register()


def main() -> None:
    """Entry point of the `adadino` command."""
    try:
        app()
    except AdaDINOError as error:
        typer.echo(f"adadino: {error}", err=True)
        sys.exit(1)
    except KeyboardInterrupt:
        typer.echo("adadino: interrupted; nothing was left half-written.", err=True)
        sys.exit(130)


if __name__ == "__main__":
    main()
