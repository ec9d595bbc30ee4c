"""How predict and predict-area take the settings of a scene (`SceneOptions`, `Extent`)."""

from __future__ import annotations

from typing import Any

import typer

from adadino.cli.options import Typed, takes_dataclasses, whole_number


def _batch(text: str) -> int | None:
    return None if text == "auto" else whole_number(text)


def read_bands(text: str) -> tuple[int, ...]:
    """Numbers of bands, as `3,2,1`."""
    return tuple(map(whole_number, text.split(",")))


def read_scale(text: str) -> tuple[float, ...]:
    """Raw values of black and white, as `0,3000`."""
    return _numbers(text, "MIN,MAX")


def _box(text: str) -> tuple[float, ...]:
    return _numbers(text, "LEFT,BOTTOM,RIGHT,TOP")


def _numbers(text: str, form: str) -> tuple[float, ...]:
    try:
        numbers = tuple(map(float, text.split(",")))
    except ValueError:
        numbers = ()
    if len(numbers) != form.count(",") + 1:
        raise typer.BadParameter(f"{text!r} must be {form.count(',') + 1} numbers, {form}")
    return numbers


def _dates(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def read_colours(bands: str | None, scale: str | None) -> dict[str, Any]:
    """How a map's images were read, from the options that say so."""
    return {
        "bands": None if bands is None else read_bands(bands),
        "scale": None if scale is None else read_scale(scale),
    }


takes_scene_options = takes_dataclasses(
    bands=Typed(read_bands, "R,G,B"),
    scale=Typed(read_scale, "MIN,MAX"),
    batch=Typed(_batch, "N|auto", "auto"),
    bbox=Typed(_box, "LEFT,BOTTOM,RIGHT,TOP"),
    dates=Typed(_dates, "DATE,DATE"),
)
