"""The options that predict and predict-area share, and what they make of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from adadino.scene import SceneOptions

Selected = Literal["scene", "batch"]
Precision = Literal["auto", "off", "bf16", "fp8", "int8"]

Model = Annotated[
    str, typer.Option(help="A checkpoint folder, e.g. runs/levir/best, or an .onnx file.")
]
Backbone = Annotated[
    str | None, typer.Option(help="Backbone weights, if not where the model says.")
]
Threshold = Annotated[float, typer.Option(help="Probability from which a pixel changed.")]
Bands = Annotated[str | None, typer.Option(help="Red, green, blue from 1: 3,2,1.")]
Scale = Annotated[str | None, typer.Option(help="Raw values that are black and white.")]
Register = Annotated[
    bool, typer.Option("--register", help="Apply the estimated shift, if it is reliable.")
]
MinArea = Annotated[float, typer.Option(help="Leave smaller polygons out, m2.")]
Simplify = Annotated[float, typer.Option(help="How far outlines may move, m.")]
Selection = Annotated[Selected, typer.Option(help="FFN chunks: once a scene, or per batch.")]
Tile = Annotated[int, typer.Option(help="Side of a tile in pixels.")]
Overlap = Annotated[int, typer.Option(help="Pixels that neighbouring tiles share.")]
Batch = Annotated[
    str, typer.Option(metavar="N|auto", help="Tiles per forward pass; auto by free memory.")
]
Engine = Annotated[
    Precision, typer.Option(help="Inference engine: auto is bf16 on a GPU, off elsewhere.")
]


def scene_options(
    *,
    threshold: float,
    tile: int,
    overlap: int,
    batch: str,
    readers: int | None,
    selection: Selected,
    engine: Precision,
    bands: str | None,
    scale: str | None,
    register: bool,
    min_area: float,
    simplify: float,
) -> SceneOptions:
    """Settings of a scene from what was typed."""
    from adadino.scene import SceneOptions

    return SceneOptions(
        threshold=threshold,
        tile=tile,
        overlap=overlap,
        batch=None if batch == "auto" else _whole_number(batch, "--batch"),
        readers=readers,
        selection=selection,
        engine=engine,
        bands=None
        if bands is None
        else tuple(_whole_number(number, "--bands") for number in bands.split(",")),
        scale=None if scale is None else _two_numbers(scale, "--scale"),
        register=register,
        min_area=min_area,
        simplify=simplify,
    )


def _whole_number(text: str, option: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise typer.BadParameter(f"{option} has {text!r}, which is no whole number") from error


def _two_numbers(text: str, option: str) -> tuple[float, float]:
    try:
        low, high = map(float, text.split(","))
    except ValueError as error:
        raise typer.BadParameter(f"{option} {text!r} must be two numbers, MIN,MAX") from error
    return low, high
