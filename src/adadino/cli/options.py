"""Options that several verbs share, and options that are made of a dataclass's fields.

A command with a parameter of a dataclass type takes that dataclass's annotated fields as options.
The field has the name, the type, the default and the help, so each stands in one place:

    @takes_dataclasses()
    def command(*, options: ExportOptions) -> None: ...

    half: Annotated[bool, "Weights in float16."] = False              # --half
    size: Annotated[int, "Side in pixels.", Bounds(1)] = 256          # --size 256, refuses 0
    wait_s: Annotated[float, "Hours.", Shown("wait", 3600)] = 60.0    # --wait 0.5
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

import typer

from adadino.schema import Bounds, Shown

Backbone = Annotated[
    str | None, typer.Option(help="Backbone weights, if not where the model says.")
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, mps.")]
Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on standard output, nothing else.")
]
Bands = Annotated[
    str | None, typer.Option(metavar="R,G,B", help="The map's --bands, if it had them.")
]
Scale = Annotated[
    str | None, typer.Option(metavar="MIN,MAX", help="The map's --scale, if it had one.")
]
Model = Annotated[
    str, typer.Option(help="A checkpoint folder, e.g. runs/levir/best, or an .onnx file.")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what exists.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="No progress, results only.")]

Command = Callable[..., None]


class Typed(NamedTuple):
    """An option that is typed in a form of its own: `3,2,1`, `auto`."""

    parse: Callable[[str], Any]
    metavar: str
    default: bool | str = False
    """What the help shows as the default; False shows none."""


def takes_dataclasses(**typed: Typed) -> Callable[[Command], Command]:
    """Give a verb the fields of its dataclass parameters as options, in the parameters' places.

    All parameters of the verb's function must be keyword-only.

    Args:
        typed: By a field's name, how its text is read.
    """

    def derive(command: Command) -> Command:
        groups: dict[str, tuple[Any, dict[str, Any]]] = {}
        parameters: list[inspect.Parameter] = []
        for parameter in inspect.signature(command, eval_str=True).parameters.values():
            kind = parameter.annotation
            if not dataclasses.is_dataclass(kind):
                parameters.append(parameter)
                continue
            hints = get_type_hints(kind, include_extras=True)
            options = list(_options(kind, hints, typed))
            groups[parameter.name] = kind, {option.name: hints[option.name] for option in options}
            parameters += options

        @functools.wraps(command)
        def run(**given: Any) -> None:
            for name, (kind, hints) in groups.items():
                values = {field: given.pop(field) for field in hints}
                given[name] = kind(**dict(_field_values(kind, hints, values)))
            command(**given)

        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return derive


def _options(
    cls: Any, hints: Mapping[str, Any], typed: Mapping[str, Typed]
) -> Iterator[inspect.Parameter]:
    """The annotated fields of a dataclass as typer takes them."""
    for field in dataclasses.fields(cls):
        if get_origin(hints[field.name]) is not Annotated:
            continue
        default: Any = field.default
        kind, text, *more = get_args(hints[field.name])
        shown = _shown(field.name, more)
        option = typer.Option(
            f"--{shown.name}/--no-{shown.name}" if default is True else f"--{shown.name}"
        )
        option.help = text
        for bounds in more:
            if isinstance(bounds, Bounds):
                option.min, option.max = bounds
        several = get_origin(kind) is tuple and get_args(kind)[1:] == (...,)
        if field.name in typed:
            kind = str | None
            option.parser, option.metavar, option.show_default = typed[field.name]
        elif several:  # may be given again
            kind = list[get_args(kind)[0]]  # type: ignore[misc]
        if field.default_factory is not dataclasses.MISSING:
            kind, default = kind | None, None
        elif default is dataclasses.MISSING:
            default = inspect.Parameter.empty
        elif several:
            default = list(default)
        elif shown.unit != 1:
            kind, default = float, default / shown.unit
        yield inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=default,
            annotation=Annotated[kind, option],
        )


def _shown(name: str, more: list[Any]) -> Shown:
    """How a field's option is called, and in which unit it is given."""
    given = (one for one in more if isinstance(one, Shown))
    return next(given, Shown(name.replace("_", "-")))


def _field_values(
    cls: Any, hints: Mapping[str, Any], given: Mapping[str, Any]
) -> Iterator[tuple[str, Any]]:
    """The values of a dataclass's fields for what was typed."""
    for field in dataclasses.fields(cls):
        if field.name not in given:
            continue
        value, (kind, _, *more) = given[field.name], get_args(hints[field.name])
        if value is None and field.default_factory is not dataclasses.MISSING:
            continue
        if isinstance(value, list):
            value = tuple(value)
        elif (unit := _shown(field.name, more).unit) != 1:
            value = kind(value * unit)
        yield field.name, value


def whole_number(text: str) -> int:
    """Read a whole number, or say that this is none."""
    try:
        return int(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is no whole number") from error
