"""`adadino`: registers the verbs and turns our errors into one sentence and exit code 1."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any, TextIO

import typer

from adadino import __version__
from adadino.errors import AdaDINOError, AdaDINOWarning

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


VERBS = (
    "demo",
    "predict",
    "predict-area",
    "info",
    "synthesize",
    "prepare",
    "pretrain",
    "train",
    "evaluate",
    "reproduce",
    "benchmark",
    "export",
    "serve",
    "doctor",
)
"""In the order of the help."""


def _register() -> None:
    for verb in VERBS:
        module = import_module(f"adadino.cli.{verb.replace('-', '_')}")
        command: Callable[..., Any] = module.command
        app.command(verb, context_settings=getattr(module, "CONTEXT", None))(command)


_register()


_show_other = warnings.showwarning


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Our own warnings in one line, like our errors; others as Python shows them."""
    if issubclass(category, AdaDINOWarning):
        typer.echo(f"adadino: warning: {message}", err=True)
    else:
        _show_other(message, category, filename, lineno, file, line)


def main() -> None:
    """Entry point of the `adadino` command."""
    warnings.showwarning = _show_warning
    try:
        app()
    except AdaDINOError as error:
        typer.echo(f"adadino: {error}", err=True)
        sys.exit(1)
    except ModuleNotFoundError as error:
        from adadino.doctor import extra_with

        extra = extra_with(error.name or "")
        if extra is None:
            raise
        typer.echo(
            f"adadino: this needs {error.name}, which is not installed: "
            f"pip install 'adadino[{extra}]'. adadino doctor lists what is there.",
            err=True,
        )
        sys.exit(1)
    except (KeyboardInterrupt, SystemExit) as end:
        # typer turns Ctrl-C inside a verb into a silent exit with 130.
        if isinstance(end, SystemExit) and end.code != 130:
            raise
        typer.echo(
            "adadino: interrupted; nothing is half-written, the same command goes on "
            "(predict: with --resume).",
            err=True,
        )
        sys.exit(130)


if __name__ == "__main__":
    main()
