"""`adadino`: registers the verbs and turns our errors into one sentence and exit code 1."""

from __future__ import annotations

import functools
import os
import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO

import typer

from adadino import __version__
from adadino.errors import AdaDINOError, AdaDINOWarning, InputError

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
    "predict-series",
    "predict-area",
    "judge",
    "assess",
    "adapt",
    "calibrate",
    "info",
    "synthesize",
    "prepare",
    "pretrain",
    "train",
    "settings",
    "study",
    "convert",
    "evaluate",
    "reproduce",
    "benchmark",
    "export",
    "serve",
    "doctor",
)
"""The verbs, in the order of the help."""


LONGEST_NAME, LONGEST_PATH = 255, 4096
"""The most bytes of a name and of a path on the usual file systems."""


def _checked(command: Callable[..., Any]) -> Callable[..., Any]:
    """Refuse names that no file can have, once for all verbs and before anything asks the disk."""

    @functools.wraps(command)
    def run(*arguments: Any, **options: Any) -> Any:
        for name, value in options.items():
            for one in value if isinstance(value, list | tuple) else (value,):
                if isinstance(one, str | Path):
                    _check_name(name, one)
        return command(*arguments, **options)

    return run


def _check_name(option: str, name: str | Path) -> None:
    try:
        size = len(str(name).encode())
    except UnicodeEncodeError:
        raise InputError(
            f"{option} is {str(name)!a}, which is no text in UTF-8; rename the file."
        ) from None
    if "\0" in str(name):
        raise InputError(f"{option} is {str(name)!a}, which holds a zero byte; leave it out.")
    # Other options may be addresses, which are longer than names of files.
    parts = name.parts if isinstance(name, Path) else ()
    if size > LONGEST_PATH or any(len(part.encode()) > LONGEST_NAME for part in parts):
        raise InputError(
            f"{option} is {str(name)[:40]!r}... of {size} bytes, longer than the name of a file "
            "may be; choose a shorter one."
        )


def _register() -> None:
    for verb in VERBS:
        module = import_module(f"adadino.cli.{verb.replace('-', '_')}")
        if hasattr(module, "group"):  # a verb with verbs of its own
            for inner in module.group.registered_commands:
                inner.callback = _checked(inner.callback)
            app.add_typer(module.group)
            continue
        command: Callable[..., Any] = module.command
        app.command(verb, context_settings=getattr(module, "CONTEXT", None))(_checked(command))


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


def _hush() -> None:
    """Suppress the tracebacks of rasterio's callbacks.

    rasterio cannot decode some of GDAL's remarks on damaged files. That happens inside a callback,
    so Python prints a traceback and goes on. Our own message says what is wrong with the file.
    """

    def unraisable(problem: Any) -> None:
        if "rasterio" not in str(problem.object):
            sys.__unraisablehook__(problem)

    def uncaught(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        if trace is not None or kind is not UnicodeDecodeError:  # the same once more, from nowhere
            sys.__excepthook__(kind, error, trace)

    sys.unraisablehook, sys.excepthook = unraisable, uncaught


def _wait_politely() -> None:
    """Have threads that wait sleep, instead of spinning on a processor that others need.

    OpenMP reads this once, when torch loads it. A spinning thread gains a few per cent on an idle
    machine, and on a busy one it keeps the threads it waits for from running.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("KMP_BLOCKTIME", "0")  # the same for Intel's and LLVM's OpenMP


def main() -> None:
    """Entry point of the `adadino` command."""
    _wait_politely()
    warnings.showwarning = _show_warning
    _hush()
    try:
        app()
    except AdaDINOError as error:
        typer.echo(f"adadino: {error}", err=True)
        sys.exit(1)
    except ModuleNotFoundError as error:
        from adadino.extras import extra_with

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
