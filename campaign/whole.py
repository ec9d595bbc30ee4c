"""Whether a file is whole: opened and read to its end by whoever reads such files."""

from __future__ import annotations

import csv
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import numpy as np


def broken(path: Path) -> str | None:
    """Why a file cannot be read to its end; None if it can, or if no reader is known for it."""
    read = READERS.get(path.suffix.lower())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if path.stat().st_size == 0:
                return "it is empty"
            if read is not None:
                read(path)
    except Exception as error:  # each reader has errors of its own
        return f"{type(error).__name__}: {error}"
    return None


def _image(path: Path) -> None:
    from PIL import Image

    with Image.open(path) as image:
        image.load()


def _raster(path: Path) -> None:
    import rasterio

    with rasterio.open(path) as dataset:
        dataset.read()


def _layer(path: Path) -> None:
    import pyogrio

    pyogrio.read_dataframe(path)


def _tensors(path: Path) -> None:
    from safetensors.torch import load_file

    load_file(path)


def _state(path: Path) -> None:
    import torch

    torch.load(path, map_location="cpu", weights_only=True)


def _rows(path: Path) -> None:
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    if not rows or any(None in row or None in row.values() for row in rows):
        raise ValueError("a row is cut off")


def _settings(path: Path) -> None:
    import yaml

    if not isinstance(yaml.safe_load(path.read_text()), dict):
        raise ValueError("no mapping")


def _arrays(path: Path) -> None:
    with np.load(path) as arrays:
        for name in arrays.files:
            arrays[name]


def _graph(path: Path) -> None:
    import onnx

    onnx.checker.check_model(str(path))


READERS: dict[str, Callable[[Path], object]] = {
    ".png": _image,
    ".tif": _raster,
    ".gpkg": _layer,
    ".json": lambda path: json.loads(path.read_text()),
    ".safetensors": _tensors,
    ".ckpt": _state,
    ".csv": _rows,
    ".yaml": _settings,
    ".npz": _arrays,
    ".onnx": _graph,
    ".qml": ElementTree.parse,
    ".vrt": ElementTree.parse,
    ".md": lambda path: path.read_text(encoding="utf-8"),
}
