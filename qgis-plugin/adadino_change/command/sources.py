# SPDX-License-Identifier: GPL-2.0-or-later
"""What the command can open of a layer in QGIS: a file, or a string that GDAL opens."""

from __future__ import annotations

import re
from pathlib import Path

from .errors import CommandError

EXPORT = "Export it to a GeoTIFF first: right-click the layer > Export > Save As, Raw data."
_DRIVER = re.compile(r"^[A-Za-z][A-Za-z0-9_]+:")


def raster_source(source: str, provider: str, name: str) -> tuple[str, str]:
    """Return what the command opens for a raster layer, and a remark for the log or nothing.

    Args:
        source: The layer's source as QGIS has it.
        provider: The layer's data provider.
        name: What the user calls the layer.

    Raises:
        CommandError: The layer is no file and nothing that GDAL reads.
    """
    if provider != "gdal":
        raise CommandError(
            f"The layer {name!r} comes from the provider {provider!r} and is no file, so the "
            f"adadino command cannot read it. {EXPORT}"
        )
    if Path(source).is_file():
        return source, ""
    if "|" in source:
        raise CommandError(
            f"The layer {name!r} has the source {source!r}, whose settings after | only QGIS "
            f"understands. {EXPORT}"
        )
    if "password" in source.lower() or re.match(r"^(PG|MYSQL|MSSQL|OCI|GEOR):", source, re.I):
        raise CommandError(f"The layer {name!r} comes from a database. {EXPORT}")
    if source.startswith("/vsimem/"):
        raise CommandError(f"The layer {name!r} is in QGIS's memory only. {EXPORT}")
    if source.startswith("/vsi") or _looks_like_gdal(source):
        return source, f"{name} is no plain file; GDAL opens it as {source}."
    raise CommandError(
        f"The layer {name!r} is {source}, which does not exist. It was moved or deleted; add the "
        "image to QGIS again."
    )


def _looks_like_gdal(source: str) -> bool:
    """Whether it names a driver, as in NETCDF:file:variable; C: is a drive of Windows."""
    return bool(_DRIVER.match(source))


def vector_file(source: str, provider: str, name: str) -> str:
    """Return the file of a vector layer.

    Raises:
        CommandError: The layer is no file.
    """
    path = source.partition("|")[0]
    if provider != "ogr" or not Path(path).is_file():
        raise CommandError(
            f"The layer {name!r} is no file on this computer, so the adadino command cannot read "
            "it. Choose the GeoPackage itself."
        )
    return path


def check_model(model: str) -> None:
    """Refuse a model that is gone, before the command spends seconds on loading.

    A name without a folder, such as `tiny` or `someone/model`, is the command's business.

    Raises:
        CommandError: It is a path, and nothing is there.
    """
    path = Path(model).expanduser()
    is_path = path.is_absolute() or model.startswith((".", "~")) or model.endswith(".onnx")
    if is_path and not path.exists():
        raise CommandError(
            f"There is no model at {model}; it was moved or deleted. Choose another, or leave the "
            "field empty for the model that comes with adadino."
        )
