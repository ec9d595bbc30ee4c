"""What a file that somebody sends may not do: open another one.

GDAL tells a format by its content, whatever the name says, and some formats are recipes: a VRT or a
GDALG names other files, databases and addresses, which GDAL then opens. A coordinate system may
name grids, which PROJ opens. Files that people exchange while they judge a map are plain ones, so
that nothing else is taken for them. Images are opened by `source` and, on a server, by `web.door`.
"""

from __future__ import annotations

import re
from pathlib import Path

from adadino.errors import InputError

LAYERS = {
    b"SQLite format 3\x00": "GeoPackage",
    b"fgb": "FlatGeobuf",
    b"\x00\x00\x27\x0a": "Shapefile",
    b"{": "GeoJSON",
}
"""How layers of polygons begin."""
_RECIPE = b"gdal_streamed_alg"
"""What GDAL looks for in a JSON file to follow it as a recipe."""
_FILES = re.compile(r'PROJ4_GRIDS|PARAMETERFILE|(grids|init|file|model)=(?!@null[\s"])', re.I)
"""How a coordinate system names files that PROJ opens."""


def check_layer(path: Path) -> None:
    """Refuse a layer of polygons that is not one of the plain formats.

    Raises:
        InputError: It is another format, cannot be read, or leads to other files.
    """
    try:
        head = _head(path, 2**20)
    except OSError as error:
        raise InputError(f"cannot read polygons of {path}: {error.strerror}.") from error
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if not any(each.startswith(magic) for each in (head, start) for magic in LAYERS):
        raise InputError(
            f"{path} is no {', '.join(LAYERS.values())}, whatever its name says; write the layer "
            "as GeoPackage (.gpkg)."
        )
    if start.startswith(b"{") and _RECIPE in head:
        raise InputError(f"{path} is a recipe that opens other files; give the layer itself.")


def check_system(wkt: str, path: Path | str) -> None:
    """Refuse a coordinate system that names files.

    Raises:
        InputError: It does.
    """
    if names_files(wkt):
        raise InputError(
            f"the coordinate system of {path} names other files; write it in a plain one (EPSG)."
        )


def check_tiff(path: Path) -> None:
    """Refuse a raster that is no TIFF, whatever its name says.

    Raises:
        InputError: It is none, or cannot be read.
    """
    try:
        head = _head(path, 4)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}.") from error
    if head[:3] not in (b"II*", b"II+") and head not in (b"MM\x00*", b"MM\x00+"):
        raise InputError(f"{path} is no TIFF, whatever its name says; begin a new review.")


def names_files(wkt: str) -> bool:
    """Whether a coordinate system, as WKT, needs files that it names: grids to shift by."""
    return _FILES.search(wkt) is not None


def _head(path: Path, size: int) -> bytes:
    with path.open("rb") as file:
        return file.read(size)
