"""`adadino settings`: every setting of a run, with its default and what it does."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
from collections.abc import Iterator
from typing import Annotated, Any, get_type_hints

import typer

from adadino.cli.options import Json
from adadino.cli.output import print_json


def command(
    about: Annotated[
        str, typer.Argument(help="Only settings whose path or help holds this, e.g. train.")
    ] = "",
    json: Json = False,
) -> None:
    """List all settings of `adadino train` by their paths: --train.lr 1e-4."""
    from adadino.errors import ConfigError
    from adadino.training.config import RunConfig

    word = about.lower()
    found = [row for row in settings(RunConfig) if word in f"{row['path']} {row['help']}".lower()]
    if not found:
        raise ConfigError(f"no setting is about {about!r}; adadino settings lists them all.")
    if json:
        print_json({"settings": found})
        return
    for row in found:
        typer.echo(f"{row['path']}: {row['type']} = {_shown(row['default'])}")
        typer.echo(textwrap.indent(textwrap.fill(row["help"], 92), "    "))
    typer.echo("\ngive one to adadino train: --train.lr 1e-4, or in a YAML file (--config)")


def settings(kind: type, path: str = "") -> Iterator[dict[str, Any]]:
    """The settings of a dataclass and those inside it: path, type, default and help."""
    hints, helps = get_type_hints(kind), attribute_docs(kind)
    for field in dataclasses.fields(kind):
        inner = hints[field.name]
        if dataclasses.is_dataclass(inner):
            yield from settings(inner, f"{path}{field.name}.")  # type: ignore[arg-type]
            continue
        known = "" if isinstance(field.type, type) else str(field.type)
        yield {
            "path": path + field.name,
            "type": known or getattr(inner, "__name__", str(inner)),
            "default": _default(field),
            "help": helps.get(field.name, ""),
        }


def attribute_docs(kind: type) -> dict[str, str]:
    """The strings below a class's fields, on one line each: our help texts stand there."""
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(body, ast.ClassDef)
    docs = {}
    for field, below in zip(body.body, body.body[1:], strict=False):
        text = below.value if isinstance(below, ast.Expr) else None
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Constant):
            docs[ast.unparse(field.target)] = " ".join(str(text.value).split())
    return docs


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return None if field.default is dataclasses.MISSING else field.default


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value)) or "none"
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)
