"""The routes of what was found: tiles, polygons, and files at the current threshold."""

from __future__ import annotations

import shutil
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi import Path as PathPart
from fastapi.responses import FileResponse
from starlette.background import BackgroundTask

from adadino.scene.options import SceneOptions
from adadino.web.http.ask import Kept
from adadino.web.http.problems import documented
from adadino.web.http.schemas import PolygonsOut
from adadino.web.jobs.records import Job
from adadino.web.service import Service
from adadino.web.view.tiles import PROBABILITY, Layer

THRESHOLD = SceneOptions.threshold
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
        response_class=Response,
        responses={200: {"model": PolygonsOut}, **documented(404, 409, 422, 503, 507)},
        summary="The polygons, for the screen",
    )
    async def polygons(
        request: Request, job_id: str, threshold: Threshold = THRESHOLD, min_area: MinArea = 0.0
    ) -> Any:
        """At any threshold, from the stored probability; the largest first."""
        found = await service.polygons(request, job_id, threshold=threshold, min_area=min_area)
        return Response(found, media_type="application/json")

    @router.get("/probability.tif", **_file(TIFF), summary="The probability as a COG")
    def probability(job_id: str) -> Any:
        """Float32, NaN where there is no data."""
        job, _, _ = service.finished(job_id)
        name = f"{_stem(job)}-probability.tif"
        return FileResponse(service.store.file(job_id, PROBABILITY), media_type=TIFF, filename=name)

    @router.get("/mask.tif", **_file(TIFF), summary="The change mask as a COG")
    async def mask(
        request: Request, job_id: str, threshold: Threshold = THRESHOLD, min_area: MinArea = 0.0
    ) -> Any:
        """0 no, 1 yes, 255 nodata; without the changes that are smaller."""
        options = {"threshold": threshold, "min_area": min_area}
        return await _made(service, request, job_id, "mask", "mask.tif", TIFF, options)

    @router.get("/result.gpkg", **_file(GPKG), summary="The polygons as GeoPackage")
    async def gpkg(
        request: Request, job_id: str, threshold: Threshold = THRESHOLD, min_area: MinArea = 0.0
    ) -> Any:
        """In the scene's CRS, traced on every pixel."""
        options = {"threshold": threshold, "min_area": min_area}
        return await _made(service, request, job_id, "polygons", "change.gpkg", GPKG, options)

    @router.get("/result.geojson", **_file(GEOJSON), summary="The polygons as GeoJSON")
    async def geojson(
        request: Request, job_id: str, threshold: Threshold = THRESHOLD, min_area: MinArea = 0.0
    ) -> Any:
        """In EPSG:4326, or in pixels where there is no CRS."""
        options = {"threshold": threshold, "min_area": min_area}
        return await _made(service, request, job_id, "polygons", "change.geojson", GEOJSON, options)

    @router.get("/overview.png", **_file(PNG), summary="Before, after and change in one picture")
    async def overview(
        request: Request, job_id: str, threshold: Threshold = THRESHOLD, min_area: MinArea = 0.0
    ) -> Any:
        """With a legend and a scale bar."""
        job = service.store.get(job_id)
        title = f"{job.before_name} and {job.after_name}"
        options = {"threshold": threshold, "min_area": min_area, "title": title}
        return await _made(service, request, job_id, "picture", "overview.png", PNG, options)

    return router


def _file(kind: str) -> dict[str, Any]:
    """How a route that answers with a file is documented."""
    shape = {"type": "object"} if kind == GEOJSON else {"type": "string", "format": "binary"}
    content = {kind: {"schema": shape}}
    told = {
        200: {"description": "The file.", "content": content},
        **documented(404, 409, 422, 503, 507),
    }
    return {"response_class": Response, "responses": told}


async def _made(
    service: Service,
    request: Request,
    job_id: str,
    what: str,
    name: str,
    kind: str,
    options: dict[str, Any],
) -> FileResponse:
    """A file made for one answer, which goes when it was sent."""
    job, _, _ = service.finished(job_id)
    kept = await service.asking.made(request, job_id, what, name, options, Kept)
    gone = BackgroundTask(shutil.rmtree, kept.path.parent, ignore_errors=True)
    called = f"{_stem(job)}-{name}"
    return FileResponse(kept.path, media_type=kind, filename=called, background=gone)


def _stem(job: Job) -> str:
    """A job's name as a file name that every system takes."""
    kept = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "-" for c in job.name)
    return "-".join(filter(None, kept.split("-")))[:80].strip(".") or "change"
