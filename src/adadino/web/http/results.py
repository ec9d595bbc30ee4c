"""The routes of what was found: tiles, polygons, and files at the current threshold."""

from __future__ import annotations

import shutil
from typing import Annotated, Any, NamedTuple

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
from adadino.web.view.tiles import PROBABILITY, Seen

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

    @router.get("/tiles/{layer}/{z}/{x}/{y}.png", **as_file(PNG), summary="A tile of the map")
    def get_tile(job_id: str, layer: Seen, z: Zoom, x: Place, y: Place) -> Any:
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
    async def get_polygons(
        request: Request, job_id: str, threshold: Threshold = THRESHOLD, min_area: MinArea = 0.0
    ) -> Any:
        """At any threshold, from the stored probability; the largest first."""
        found = await service.polygons(request, job_id, threshold=threshold, min_area=min_area)
        return Response(found, media_type="application/json")

    @router.get("/probability.tif", **as_file(TIFF), summary="The probability as a COG")
    def get_probability(job_id: str) -> Any:
        """Float32, NaN where there is no data."""
        job, _, _ = service.finished(job_id)
        name = f"{_stem(job)}-probability.tif"
        return FileResponse(service.store.file(job_id, PROBABILITY), media_type=TIFF, filename=name)

    for made in MADE:
        _add_file(router, service, made)
    return router


class Made(NamedTuple):
    """A file that a worker makes when it is asked for."""

    path: str
    what: str
    """The writer, as `Asking.made` takes it."""
    name: str
    kind: str
    operation: str
    summary: str
    description: str

    @property
    def told(self) -> dict[str, Any]:
        """How its route is documented."""
        return {
            "name": self.operation, "summary": self.summary, "description": self.description,
            **as_file(self.kind),
        }  # fmt: skip


MADE = (
    Made("mask.tif", "mask", "mask.tif", TIFF, "get_mask", "The change mask as a COG",
         "0 no, 1 yes, 255 nodata; without the changes that are smaller."),
    Made("result.gpkg", "polygons", "change.gpkg", GPKG, "get_geopackage",
         "The polygons as GeoPackage", "In the scene's CRS, traced on every pixel."),
    Made("result.geojson", "polygons", "change.geojson", GEOJSON, "get_geojson",
         "The polygons as GeoJSON", "In EPSG:4326, or in pixels where there is no CRS."),
    Made("overview.png", "picture", "overview.png", PNG, "get_overview",
         "Before, after and change in one picture", "With a legend and a scale bar."),
)  # fmt: skip


def _add_file(router: APIRouter, service: Service, made: Made) -> None:
    async def route(
        request: Request, job_id: str, threshold: Threshold = THRESHOLD, min_area: MinArea = 0.0
    ) -> FileResponse:
        options: dict[str, Any] = {"threshold": threshold, "min_area": min_area}
        if made.what == "picture":
            job = service.store.get(job_id)
            options["title"] = f"{job.before_name} and {job.after_name}"
        return await send(service, request, job_id, made, options)

    router.add_api_route(f"/{made.path}", route, **made.told)


async def send(
    service: Service, request: Request, job_id: str, made: Made, options: dict[str, Any]
) -> FileResponse:
    """Have a file made for one answer; it goes when it was sent."""
    job, _, _ = service.finished(job_id)
    kept = await service.asking.made(request, job_id, made.what, made.name, options, Kept)
    gone = BackgroundTask(shutil.rmtree, kept.path.parent, ignore_errors=True)
    called = f"{_stem(job)}-{made.name}"
    return FileResponse(kept.path, media_type=made.kind, filename=called, background=gone)


def as_file(kind: str) -> dict[str, Any]:
    """How a route that answers with a file is documented."""
    shape = {"type": "object"} if kind == GEOJSON else {"type": "string", "format": "binary"}
    content = {kind: {"schema": shape}}
    told = {
        200: {"description": "The file.", "content": content},
        **documented(404, 409, 422, 503, 507),
    }
    return {"response_class": Response, "responses": told}


def _stem(job: Job) -> str:
    """A job's name as a file name that every system takes."""
    kept = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "-" for c in job.name)
    return "-".join(filter(None, kept.split("-")))[:80].strip(".") or "change"
