"""Virtual rasters: many files as one, without copying a pixel.

- `write_vrt` ties the parts of an output together. It says what GDAL would otherwise open every
  part to learn, so that a raster of a hundred thousand parts still opens at once.
- `write_mosaic` makes one image of a collection of them, for those who have tiles and no mosaic.
  A place that no image covers is invalid and not black. Where images overlap, the later one in
  the list is seen.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from affine import Affine
from rasterio.enums import MaskFlags

from adadino.errors import InputError
from adadino.files import write_atomic
from adadino.geo.grid import TOLERANCE, Grid
from adadino.geo.read.source import ImagePath, open_dataset
from adadino.geo.write.cog import BLOCK, Layer

TYPES = {
    "uint8": "Byte", "int8": "Int8", "uint16": "UInt16", "int16": "Int16", "uint32": "UInt32",
    "int32": "Int32", "float32": "Float32", "float64": "Float64",
}  # fmt: skip


class Piece(NamedTuple):
    """A file and where it lies in the whole, in pixels of the whole."""

    path: Path
    grid: Grid
    row: float
    col: float
    height: float
    width: float


def write_vrt(path: Path, grid: Grid, layer: Layer, pieces: Iterable[Piece]) -> None:
    """Tie rasters of one band together.

    Args:
        path: The `.vrt`; it names the pieces relative to itself.
        grid: The grid of the whole.
        layer: What the pixels mean.
        pieces: The files; where none lies there is nodata.
    """
    root = _root(grid)
    band = SubElement(root, "VRTRasterBand", dataType=TYPES[layer.dtype], band="1")
    SubElement(band, "Description").text = layer.description
    SubElement(band, "NoDataValue").text = f"{layer.nodata:g}"
    if layer.colours:
        SubElement(band, "ColorInterp").text = "Palette"
        table = SubElement(band, "ColorTable")
        for value in range(max(layer.colours) + 1):
            colour = layer.colours.get(value, (0, 0, 0, 255))
            names = ("c1", "c2", "c3", "c4")
            SubElement(table, "Entry", dict(zip(names, map(str, colour), strict=True)))
    for piece in pieces:
        block = {"BlockXSize": str(BLOCK), "BlockYSize": str(BLOCK)}
        _source(band, path, piece, "1", TYPES[layer.dtype], block)
    _write(path, root)


def write_mosaic(path: Path, images: Sequence[ImagePath]) -> None:
    """Make one image of a collection on one lattice of pixels.

    Args:
        path: The `.vrt`.
        images: Files, or names GDAL knows.

    Raises:
        InputError: One cannot be read, or has another coordinate system, pixel size, number or
            type of bands than the first.
    """
    facts = [_facts(image) for image in images]
    first, masked = facts[0], any(each.masked for each in facts)
    for image, other in zip(images, facts, strict=True):
        _check_alike(images[0], first, image, other)
    places = [_place(first.grid, other.grid) for other in facts]
    top = min(row for row, _ in places)
    left = min(col for _, col in places)
    bottom = max(row + f.grid.height for (row, _), f in zip(places, facts, strict=True))
    right = max(col + f.grid.width for (_, col), f in zip(places, facts, strict=True))
    origin = first.grid.transform * Affine.translation(left, top)
    root = _root(Grid(first.grid.crs, origin, right - left, bottom - top))
    pieces = [
        Piece(_absolute(image), f.grid, row - top, col - left, f.grid.height, f.grid.width)
        for image, f, (row, col) in zip(images, facts, places, strict=True)
    ]
    for number, (kind, colour) in enumerate(zip(first.types, first.colours, strict=True), 1):
        band = SubElement(root, "VRTRasterBand", dataType=TYPES[kind], band=str(number))
        if first.nodata is not None:
            SubElement(band, "NoDataValue").text = repr(first.nodata)
        SubElement(band, "ColorInterp").text = colour
        for piece in pieces:
            source = _source(band, path, piece, str(number), TYPES[kind], {})
            if first.nodata is not None:
                source.tag = "ComplexSource"
                SubElement(source, "NODATA").text = repr(first.nodata)
            elif masked:  # what an image does not show hides no other
                source.tag = "ComplexSource"
                SubElement(source, "UseMaskBand").text = "true"
    if first.nodata is None:
        # GDAL's mask of each image: what is there of masks and alpha, else everything it covers.
        mask = SubElement(SubElement(root, "MaskBand"), "VRTRasterBand", dataType="Byte")
        for piece in pieces:
            source = _source(mask, path, piece, "mask,1", "Byte", {})
            if masked:
                source.tag = "ComplexSource"
                SubElement(source, "NODATA").text = "0"
    _write(path, root)


class _Facts(NamedTuple):
    grid: Grid
    types: tuple[str, ...]
    colours: tuple[str, ...]
    nodata: float | None
    masked: bool
    """Whether it has an alpha band or a mask of its own."""


def _facts(image: ImagePath) -> _Facts:
    with open_dataset(image) as dataset:
        colours = tuple(colour.name.capitalize() for colour in dataset.colorinterp)
        flags = dataset.mask_flag_enums[0]
        by_value = MaskFlags.nodata in flags
        nodata = dataset.nodata if by_value else None
        for kind in dataset.dtypes:
            if kind not in TYPES:
                raise InputError(f"{image} holds {kind}, of which no mosaic is made; convert it.")
        masked = not by_value and MaskFlags.all_valid not in flags
        return _Facts(Grid.of(dataset), dataset.dtypes, colours, nodata, masked)


def _check_alike(first: ImagePath, expected: _Facts, image: ImagePath, found: _Facts) -> None:
    ours, theirs = expected.grid.transform, found.grid.transform
    unlike = max(abs(a - b) for a, b in zip(_linear(ours), _linear(theirs), strict=True))
    size = max(found.grid.height, found.grid.width)
    differences = {
        "coordinate system": expected.grid.crs != found.grid.crs,
        "pixel size": unlike * size > TOLERANCE * max(map(abs, _linear(ours))),
        "number or type of bands": expected.types != found.types,
        "nodata value": repr(expected.nodata) != repr(found.nodata),
    }
    for what, differs in differences.items():
        if differs:
            raise InputError(
                f"{image} has another {what} than {first}, so they are no mosaic; bring them to "
                "one (gdalwarp), or give them as pairs."
            )
    if expected.grid.crs is None:
        raise InputError(
            f"{image} has no coordinate system, so it has no place in a mosaic; assign one "
            "(gdal_edit.py -a_srs)."
        )


def _place(whole: Grid, part: Grid) -> tuple[int, int]:
    """The row and column of a part's first pixel; whole numbers, to a hundredth of a pixel."""
    col, row = ~whole.transform * (part.transform.c, part.transform.f)
    if max(abs(row - round(row)), abs(col - round(col))) > 0.01:
        raise InputError(
            "the images of the mosaic do not lie on one lattice of pixels: one is off by "
            f"{row - round(row):+.2f} rows and {col - round(col):+.2f} columns; warp them onto one "
            "(gdalwarp -tap)."
        )
    return round(row), round(col)


def _linear(transform: Affine) -> tuple[float, float, float, float]:
    return transform.a, transform.b, transform.d, transform.e


def _absolute(image: ImagePath) -> Path:
    """Where a file is; names only GDAL knows stay as they are."""
    path = Path(image)
    return path.resolve() if path.exists() else path


def _root(grid: Grid) -> Element:
    size = {"rasterXSize": str(grid.width), "rasterYSize": str(grid.height)}
    root = Element("VRTDataset", size)
    if grid.crs is not None:
        SubElement(root, "SRS").text = grid.crs.to_wkt()
    SubElement(root, "GeoTransform").text = ", ".join(map(repr, grid.transform.to_gdal()))
    return root


def _source(
    band: Element, vrt: Path, piece: Piece, number: str, kind: str, block: dict[str, str]
) -> Element:
    source = SubElement(band, "SimpleSource")
    virtual = str(piece.path).startswith("/vsi")
    local = not virtual and (piece.path.is_absolute() or piece.path.exists())
    name = os.path.relpath(piece.path, vrt.parent) if local else str(piece.path)
    SubElement(source, "SourceFilename", relativeToVRT=str(int(local))).text = name
    SubElement(source, "SourceBand").text = number
    height, width = piece.grid.height, piece.grid.width
    size = {"RasterXSize": str(width), "RasterYSize": str(height)}
    SubElement(source, "SourceProperties", {**size, "DataType": kind, **block})
    _rectangle(source, "SrcRect", 0, 0, width, height)
    _rectangle(source, "DstRect", piece.col, piece.row, piece.width, piece.height)
    return source


def _rectangle(parent: Element, name: str, *numbers: float) -> None:
    texts = (f"{number:.10g}" for number in numbers)
    names = ("xOff", "yOff", "xSize", "ySize")
    SubElement(parent, name, dict(zip(names, texts, strict=True)))


def _write(path: Path, root: Any) -> None:
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="unicode") + "\n"
    # An equal file keeps its date, by which others see whether an input has changed.
    if not path.exists() or path.read_text() != text:
        write_atomic(path, text)
