"""How predict and predict-area take the settings of a scene (`SceneOptions`)."""

from __future__ import annotations

import typer

from adadino.cli.options import Typed, takes_dataclasses, whole_number


def _batch(text: str) -> int | None:
    return None if text == "auto" else whole_number(text)


def _bands(text: str) -> tuple[int, ...]:
    return tuple(map(whole_number, text.split(",")))


def _scale(text: str) -> tuple[float, float]:
    try:
        low, high = map(float, text.split(","))
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} must be two numbers, MIN,MAX") from error
    return low, high


takes_scene_options = takes_dataclasses(
    bands=Typed(_bands, "R,G,B"),
    scale=Typed(_scale, "MIN,MAX"),
    batch=Typed(_batch, "N|auto", "auto"),
)
