"""The options that predict and predict-area share: one for each field of `SceneOptions`."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer

from adadino.scene.options import SceneOptions

Model = Annotated[
    str, typer.Option(help="A checkpoint folder, e.g. runs/levir/best, or an .onnx file.")
]
Backbone = Annotated[
    str | None, typer.Option(help="Backbone weights, if not where the model says.")
]


def takes_scene_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a verb the settings of a scene as options, in the place of its parameter `settings`."""
    options = list(_options())

    @functools.wraps(command)
    def run(**given: Any) -> None:
        chosen = {option.name: given.pop(option.name) for option in options}
        command(**given, settings=SceneOptions(**chosen))

    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        parameters += options if parameter.name == "settings" else [parameter]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _options() -> Iterator[inspect.Parameter]:
    """The annotated fields of `SceneOptions` as typer takes them."""
    hints = get_type_hints(SceneOptions, include_extras=True)
    for field in dataclasses.fields(SceneOptions):
        hint = hints[field.name]
        if get_origin(hint) is not Annotated:
            continue
        kind, text = get_args(hint)
        name = f"--{field.name.replace('_', '-')}"
        option = typer.Option(name, help=text)
        if field.name in TYPED:
            kind = str | None
            option.parser, option.metavar, option.show_default = TYPED[field.name]
        elif kind == int | None:  # a count that is chosen for the user who gives none
            option.min = 1
        keyword = inspect.Parameter.KEYWORD_ONLY
        annotation = Annotated[kind, option]  # type: ignore[valid-type]
        yield inspect.Parameter(field.name, keyword, default=field.default, annotation=annotation)


def _batch(text: str) -> int | None:
    return None if text == "auto" else _whole_number(text)


def _bands(text: str) -> tuple[int, ...]:
    return tuple(map(_whole_number, text.split(",")))


def _whole_number(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is no whole number") from error


def _scale(text: str) -> tuple[float, float]:
    try:
        low, high = map(float, text.split(","))
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} must be two numbers, MIN,MAX") from error
    return low, high


TYPED: dict[str, tuple[Callable[[str], Any], str, bool | str]] = {
    "bands": (_bands, "R,G,B", False),
    "scale": (_scale, "MIN,MAX", False),
    "batch": (_batch, "N|auto", "auto"),
}
"""Settings that are typed in a form of their own: how they are read, and shown in the help."""
