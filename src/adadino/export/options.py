"""The settings of an export: names, types, defaults and help, for Python and the command line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from adadino.errors import ConfigError, WriteError
from adadino.schema import Bounds

SUFFIXES = (".onnx", ".pt2")


@dataclass(frozen=True)
class ExportOptions:
    """How a model is exported.

    - `selection`: the chunks are chosen inside the graph for every batch, or fixed now and the
      others dropped.
    - `half`: weights and products in float16; inputs and outputs stay float32.
    - `size`: without it the graph takes any batch, height and width.
    - `deepness`: one input of six bands, and the metadata that QGIS's Deepness plugin reads.
    """

    k: Annotated[int | None, "FFN chunks to execute, if not the model's own number."] = None
    selection: Annotated[
        Literal["batch", "static"], "FFN chunks: chosen for every batch, or fixed now."
    ] = "batch"
    half: Annotated[bool, "Weights in float16."] = False
    size: Annotated[int | None, "Take one pair of this side only.", Bounds(1)] = None
    deepness: Annotated[bool, "Six bands, for QGIS's Deepness plugin."] = False
    resolution: Annotated[float, "For Deepness: centimetres per pixel the model is for."] = 50.0
    opset: Annotated[int, "Version of the ONNX operators."] = 18

    def __post_init__(self) -> None:
        if self.size is not None and self.size < 1:
            raise ConfigError(f"size is {self.size}, must be at least 1.")
        if not 18 <= self.opset <= 23:
            raise ConfigError(f"opset is {self.opset}, must be between 18 and 23.")
        if not self.resolution > 0:
            raise ConfigError(f"resolution is {self.resolution}, must be positive.")

    def check_target(self, path: Path, *, overwrite: bool) -> None:
        """Refuse a name that cannot be written, or may not be.

        Raises:
            ConfigError: It has a wrong ending.
            WriteError: It exists.
        """
        if path.suffix not in SUFFIXES:
            raise ConfigError(f"cannot export to {path}; end its name in {' or '.join(SUFFIXES)}.")
        if self.deepness and path.suffix != ".onnx":
            raise ConfigError(f"Deepness reads ONNX files, not {path}; end its name in .onnx.")
        if path.exists() and not overwrite:
            raise WriteError(f"{path} exists; choose another name, or replace it with --overwrite.")

    @property
    def precision(self) -> Literal["fp32", "fp16"]:
        """The type of the weights."""
        return "fp16" if self.half else "fp32"
