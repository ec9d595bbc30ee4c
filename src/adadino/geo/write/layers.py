"""Polygons on disk: the suffix chooses the format, and the layer appears whole or not at all.

- GeoPackage, FlatGeobuf and Shapefile keep the native CRS; GeoJSON is RFC 7946: EPSG:4326, seven
  decimals, shells counter-clockwise.
- Equal frames give equal bytes: where a format records the day of writing, it is a fixed one.
- Without a CRS coordinates are those of the raster, pixels with x right and y down if it has no
  transform; a `VectorWarning` says so.
"""

from __future__ import annotations

import sqlite3
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import geopandas as gpd
import pyogrio
import pyproj
from pyogrio.errors import DataSourceError

from adadino.errors import InputError, VectorWarning, WriteError
from adadino.files import WAY_OUT, atomic, beside

LAYER = "change"
"""The layer's name; a Shapefile has only its file's name."""
EPOCH = "1970-01-01"
"""The day of writing that files record."""


@dataclass(frozen=True)
class _Format:
    """How GDAL writes a suffix."""

    driver: str
    options: dict[str, str] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    """New names of fields, where the format limits their length."""
    companions: tuple[str, ...] = ()
    """The suffixes of the files that may belong to one layer beside the named one."""


_GEOJSON = _Format("GeoJSON")
FORMATS = {
    # Later versions make GDAL before 3.8, as in QGIS 3.22, warn at every opening.
    ".gpkg": _Format("GPKG", {"VERSION": "1.2"}),
    ".geojson": _GEOJSON,
    ".json": _GEOJSON,
    ".fgb": _Format("FlatGeobuf"),
    ".shp": _Format(
        "ESRI Shapefile",
        {"ENCODING": "UTF-8", "DBF_DATE_LAST_UPDATE": EPOCH},
        {"perimeter_m": "perim_m", "perimeter_px": "perim_px"},  # ten characters at most
        (".shx", ".dbf", ".prj", ".cpg", ".qix", ".sbn", ".sbx"),
    ),
}


def write_layer(
    frame: gpd.GeoDataFrame, path: Path | str, *, overwrite: bool = False, style: str | None = None
) -> None:
    """Write polygons as .gpkg, .geojson, .json, .fgb or .shp; an empty frame as an empty layer.

    Args:
        frame: Polygons, as `adadino.geo.polygons.vector.polygons` gives them.
        path: The file. A Shapefile is several files, of which the .shp appears last.
        overwrite: Whether a file that is there may be replaced.
        style: QML to keep inside a GeoPackage, so that QGIS draws a file that was sent alone as
            one with its .qml beside it. Other formats have no place for it.
    """
    path = Path(path)
    form = FORMATS.get(path.suffix.lower())
    if form is None:
        raise InputError(f"cannot write polygons to {path}; end its name in {', '.join(FORMATS)}.")
    if path.exists() and not overwrite:
        raise WriteError(f"{path} is already there; choose another name, or --overwrite.")
    check_layer(path, frame.crs)
    options = dict(form.options)
    if frame.crs is None:
        warnings.warn(
            f"{path} has no coordinate system; its areas are in pixels, and so are its coordinates "
            "unless the images have a transform.",
            VectorWarning,
            stacklevel=2,
        )
    elif form is _GEOJSON:
        frame = frame.to_crs("EPSG:4326")
        options |= {"RFC7946": "YES", "COORDINATE_PRECISION": "7"}
    if form.driver != "ESRI Shapefile":
        options["layer"] = LAYER

    with beside(path) as folder:
        draft = folder / path.name
        _save(frame.rename(columns=form.names), draft, form.driver, options)
        if style is not None and form.driver == "GPKG":
            _keep_style(draft, style)
        for suffix in form.companions:
            _publish(draft.with_suffix(suffix), path.with_suffix(suffix))
        _publish(draft, path)


def check_layer(path: Path, crs: pyproj.CRS | None) -> None:
    """Refuse a layer that the format cannot place.

    Raises:
        WriteError: It is GeoJSON, and the coordinate system is local.
    """
    geojson = FORMATS.get(path.suffix.lower()) is _GEOJSON
    if geojson and crs is not None and crs.geodetic_crs is None:
        raise WriteError(
            f"cannot write {path}: GeoJSON needs longitude and latitude, and the images lie in the "
            f"local system {crs.name}; end the name in .gpkg."
        )


def _save(frame: gpd.GeoDataFrame, path: Path, driver: str, options: dict[str, str]) -> None:
    multi = bool((frame.geom_type == "MultiPolygon").any())
    with _fixed_date(), warnings.catch_warnings():
        # Our own warning has said that there is no CRS.
        warnings.filterwarnings("ignore", message="'crs' was not provided")
        try:
            pyogrio.write_dataframe(
                frame,
                path,
                driver=driver,
                # Given, because an empty frame has no geometry to infer it from.
                geometry_type="MultiPolygon" if multi else "Polygon",
                promote_to_multi=multi,
                **options,
            )
        except (DataSourceError, OSError) as error:
            raise WriteError(f"cannot write {path.name}: {error}. {WAY_OUT}") from error


def _keep_style(path: Path, style: str) -> None:
    """Add the table in which QGIS looks for a layer's style."""
    columns = {
        "f_table_catalog": "", "f_table_schema": "", "f_table_name": LAYER,
        "f_geometry_column": "geom", "styleName": LAYER, "styleQML": style, "styleSLD": "",
        "useAsDefault": 1, "description": "", "owner": "", "ui": None,
        "update_time": f"{EPOCH}T00:00:00.000Z",
    }  # fmt: skip
    # Older GDAL warns of columns without a type.
    kinds = {"useAsDefault": "BOOLEAN", "update_time": "DATETIME"}
    typed = ", ".join(f"{name} {kinds.get(name, 'TEXT')}" for name in columns)
    names = ", ".join(columns)
    places = ", ".join("?" * len(columns))
    with closing(sqlite3.connect(path)) as base, base:
        base.execute(f"CREATE TABLE layer_styles (id INTEGER PRIMARY KEY, {typed})")
        base.execute(
            f"INSERT INTO layer_styles ({names}) VALUES ({places})", tuple(columns.values())
        )


@contextmanager
def _fixed_date() -> Iterator[None]:
    """A GeoPackage records when it was written; let that not depend on the day."""
    name = "OGR_CURRENT_DATE"
    before = pyogrio.get_gdal_config_option(name)
    pyogrio.set_gdal_config_options({name: f"{EPOCH}T00:00:00.000Z"})
    try:
        yield
    finally:
        pyogrio.set_gdal_config_options({name: before})


def _publish(draft: Path, path: Path) -> None:
    """Move a finished file to its place; a file the new layer does not have goes away."""
    if draft.exists():
        with atomic(path) as part:
            draft.replace(part)
    else:
        path.unlink(missing_ok=True)
