"""The routes of what was found: tiles, polygons, and files at the current threshold."""

from __future__ import annotations

import shutil
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from fastapi import Path as PathPart
from fastapi.responses import FileResponse
from starlette.background import BackgroundTask

from adadino.errors import VectorWarning
from adadino.web.http.problems import disk_problem, documented
from adadino.web.http.schemas import PolygonsOut
from adadino.web.jobs.records import Job
from adadino.web.jobs.store import HIDDEN
from adadino.web.service import Service
from adadino.web.view.display import Display
from adadino.web.view.tiles import PROBABILITY, Layer

Threshold = Annotated[
    float,
    Query(gt=0, lt=1, allow_inf_nan=False, description="Probability from which a pixel changed."),
]
MinArea = Annotated[
    float,
    Query(ge=0, le=1e15, allow_inf_nan=False, description="Smaller polygons are left out: m2, "
          "or pixels without a CRS."),
]  # fmt: skip
Zoom = Annotated[int, PathPart(ge=0, le=40)]
Place = Annotated[int, PathPart(ge=0, le=2**31)]
Write = Callable[[Path, Path, Display, Job], None]

TIFF, PNG = "image/tiff", "image/png"
GPKG, GEOJSON = "application/geopackage+sqlite3", "application/geo+json"


def result_routes(service: Service) -> APIRouter:
    """Routes that read what a job left behind; none of them runs the model."""
    router = APIRouter(prefix="/api/jobs/{job_id}", tags=["results"])

    @router.get("/tiles/{layer}/{z}/{x}/{y}.png", **_file(PNG), summary="A tile of the map")
    def tile(job_id: str, layer: Layer, z: Zoom, x: Place, y: Place) -> Any:
        """256 x 256 pixels in the scene's own grid: level 0 is the whole scene, y runs down."""
        drawn = service.tile(job_id, layer, z, x, y)
        kept = {"cache-control": "private, max-age=86400, immutable"}
        return Response(drawn, media_type=PNG, headers=kept)

    @router.get(
        "/polygons",
        response_model=PolygonsOut,
        responses=documented(404, 409, 422),
        summary="The polygons, for the screen",
    )
    def polygons(job_id: str, threshold: Threshold = 0.5, min_area: MinArea = 0.0) -> Any:
        """At any threshold, from the stored probability; the largest first."""
        from adadino.web.view.change import as_geojson

        cut, display = service.cut(job_id, threshold)
        return as_geojson(cut, display, threshold=threshold, min_area=min_area)

    @router.get("/probability.tif", **_file(TIFF), summary="The probability as a COG")
    def probability(job_id: str) -> Any:
        """Float32, NaN where there is no data."""
        job, folder, _ = service.finished(job_id)
        name = f"{_stem(job)}-probability.tif"
        return FileResponse(folder / PROBABILITY, media_type=TIFF, filename=name)

    @router.get("/mask.tif", **_file(TIFF), summary="The change mask as a COG")
    def mask(job_id: str, threshold: Threshold = 0.5) -> Any:
        """0 no, 1 yes, 255 nodata."""

        def write(path: Path, folder: Path, display: Display, job: Job) -> None:
            from adadino.web.view.change import write_mask

            write_mask(folder, display, path, threshold=threshold)

        return _made(service, job_id, "mask.tif", TIFF, write)

    @router.get("/result.gpkg", **_file(GPKG), summary="The polygons as GeoPackage")
    def gpkg(job_id: str, threshold: Threshold = 0.5, min_area: MinArea = 0.0) -> Any:
        """In the scene's CRS, traced on every pixel."""
        return _made(service, job_id, "change.gpkg", GPKG, _polygons(threshold, min_area))

    @router.get("/result.geojson", **_file(GEOJSON), summary="The polygons as GeoJSON")
    def geojson(job_id: str, threshold: Threshold = 0.5, min_area: MinArea = 0.0) -> Any:
        """In EPSG:4326, or in pixels where there is no CRS."""
        return _made(service, job_id, "change.geojson", GEOJSON, _polygons(threshold, min_area))

    @router.get("/overview.png", **_file(PNG), summary="Before, after and change in one picture")
    def overview(job_id: str, threshold: Threshold = 0.5, min_area: MinArea = 0.0) -> Any:
        """With a legend and a scale bar."""

        def write(path: Path, folder: Path, display: Display, job: Job) -> None:
            from adadino.web.view.change import write_picture

            title = f"{job.before_name} and {job.after_name}"
            write_picture(
                folder, display, path, threshold=threshold, min_area=min_area, title=title
            )

        return _made(service, job_id, "overview.png", PNG, write)

    return router


def _file(kind: str) -> dict[str, Any]:
    """How a route that answers with a file is documented."""
    shape = {"type": "object"} if kind == GEOJSON else {"type": "string", "format": "binary"}
    content = {kind: {"schema": shape}}
    told = {200: {"description": "The file.", "content": content}, **documented(404, 409, 422, 507)}
    return {"response_class": Response, "responses": told}


def _polygons(threshold: float, min_area: float) -> Write:
    def write(path: Path, folder: Path, display: Display, job: Job) -> None:
        from adadino.web.view.change import write_polygons

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", VectorWarning)  # the page says that these are pixels
            write_polygons(folder, display, path, threshold=threshold, min_area=min_area)

    return write


def _made(service: Service, job_id: str, name: str, kind: str, write: Write) -> FileResponse:
    """A file made for one answer, which goes when it was sent."""
    job, folder, display = service.finished(job_id)
    scratch = None
    try:
        scratch = Path(tempfile.mkdtemp(prefix=f"{HIDDEN}file-", dir=service.settings.jobs))
        with service.heavy:
            write(scratch / name, folder, display, job)
    except BaseException as error:
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)
        if isinstance(error, OSError):
            raise disk_problem(error) from error
        raise
    gone = BackgroundTask(shutil.rmtree, scratch, ignore_errors=True)
    called = f"{_stem(job)}-{name}"
    return FileResponse(scratch / name, media_type=kind, filename=called, background=gone)


def _stem(job: Job) -> str:
    """A job's name as a file name that every system takes."""
    kept = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "-" for c in job.name)
    return "-".join(filter(None, kept.split("-")))[:80].strip(".") or "change"
