"""OGC API Features of a job's polygons, at a threshold and a smallest area that the address holds.

Of *OGC API - Features, Part 1: Core* this is the core with GeoJSON: landing page, conformance, one
collection `change`, its items in CRS84 with `limit`, `offset` and `bbox`. There is no HTML.
"""

from __future__ import annotations

import asyncio
import math
from datetime import UTC, datetime
from typing import Annotated, Any

import shapely
from fastapi import APIRouter, Query, Request
from fastapi import Path as PathPart
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from adadino.web.http.problems import RefusedError, documented
from adadino.web.http.results import GEOJSON
from adadino.web.http.services import base, on_earth, rfc3339
from adadino.web.http.standards import (
    CollectionOut,
    CollectionsOut,
    ConformanceOut,
    FeatureOut,
    ItemsOut,
    LandingOut,
    LinkOut,
)
from adadino.web.jobs.records import Job
from adadino.web.service import Service
from adadino.web.view.display import Display
from adadino.web.view.webtiles import degrees_extent

PREFIX = "/api/jobs/{job_id}/features/{threshold}/{min_area}"
ITEMS = "/collections/change/items"
CONFORMS = [
    f"http://www.opengis.net/spec/ogcapi-features-1/1.0/conf/{part}" for part in ("core", "geojson")
]
CRS84 = "http://www.opengis.net/def/crs/OGC/1.3/CRS84"
MOST_ITEMS = 10_000
PAGES_AT_ONCE = 2
Cut = Annotated[float, PathPart(gt=0, lt=1, allow_inf_nan=False, description="The threshold.")]
Least = Annotated[
    float, PathPart(ge=0, le=1e15, allow_inf_nan=False, description="The smallest polygon, in m2.")
]


def collection_routes(service: Service) -> APIRouter:
    """What a program reads first: the landing page, what is there, the one collection."""
    router = APIRouter(prefix=PREFIX, tags=["services"])
    answers = documented(404, 409, 422)

    @router.get("", responses=answers)
    def get_features_landing(
        request: Request, job_id: str, threshold: Cut, min_area: Least
    ) -> LandingOut:
        """The landing page of OGC API Features: paste its address into QGIS."""
        job, _ = on_earth(service, job_id)
        at = _here(request, job_id, threshold, min_area)
        root = at.split("/api/", 1)[0]
        return LandingOut(
            title=job.name, description=f"Change at threshold {threshold:g}.",
            links=[
                LinkOut(href=at, rel="self"),
                LinkOut(href=f"{root}/api/openapi.json", rel="service-desc",
                        type="application/vnd.oai.openapi+json;version=3.0"),
                LinkOut(href=f"{at}/conformance", rel="conformance"),
                LinkOut(href=f"{at}/collections", rel="data"),
            ],
        )  # fmt: skip

    @router.get("/conformance", responses=answers)
    def get_features_conformance(job_id: str, threshold: Cut, min_area: Least) -> ConformanceOut:
        """What of the standard is here: core and GeoJSON."""
        on_earth(service, job_id)
        return ConformanceOut(conformsTo=CONFORMS)

    @router.get("/collections", responses=answers)
    def list_feature_collections(
        request: Request, job_id: str, threshold: Cut, min_area: Least
    ) -> CollectionsOut:
        """One collection: the polygons."""
        at = _here(request, job_id, threshold, min_area)
        found = _collection(*on_earth(service, job_id), at)
        links = [LinkOut(href=f"{at}/collections", rel="self")]
        return CollectionsOut(collections=[found], links=links)

    @router.get("/collections/change", responses=answers)
    def get_feature_collection(
        request: Request, job_id: str, threshold: Cut, min_area: Least
    ) -> CollectionOut:
        """The polygons of change."""
        at = _here(request, job_id, threshold, min_area)
        return _collection(*on_earth(service, job_id), at)

    return router


def feature_routes(service: Service) -> APIRouter:
    """The polygons themselves."""
    router = APIRouter(prefix=PREFIX, tags=["services"])
    turns = asyncio.Semaphore(PAGES_AT_ONCE)

    @router.get(ITEMS, response_model=ItemsOut, responses=documented(404, 409, 422, 503))
    async def list_features(
        request: Request,
        job_id: str,
        threshold: Cut,
        min_area: Least,
        limit: Annotated[int, Query(ge=1, le=MOST_ITEMS)] = 1000,
        offset: Annotated[int, Query(ge=0, le=2**31)] = 0,
        bbox: Annotated[str | None, Query(max_length=200, description="W,S,E,N")] = None,
    ) -> Response:
        """The polygons in longitude and latitude, page by page."""
        on_earth(service, job_id)
        box = read_box(bbox)
        every = await service.features(request, job_id, threshold=threshold, min_area=min_area)
        at = f"{_here(request, job_id, threshold, min_area)}{ITEMS}"
        async with turns:  # in a thread: of many polygons it takes seconds
            page = await run_in_threadpool(_page, every, at, limit, offset, box)
        return Response(page, media_type="application/json")

    @router.get(f"{ITEMS}/{{feature_id}}", responses=documented(404, 409, 422, 503))
    async def get_feature(
        request: Request, job_id: str, threshold: Cut, min_area: Least, feature_id: int
    ) -> FeatureOut:
        """One polygon."""
        on_earth(service, job_id)
        every = await service.features(request, job_id, threshold=threshold, min_area=min_area)
        for one in every:
            if one["properties"].get("id") == feature_id:
                return as_item(one)
        raise RefusedError(404, f"there is no polygon {feature_id} at this threshold.")

    return router


def _page(
    every: list[dict[str, Any]], at: str, limit: int, offset: int, box: shapely.Polygon | None
) -> str:
    """One page of the polygons that a box touches, as JSON."""
    if box is not None:
        every = [one for one in every if box.intersects(shapely.geometry.shape(one["geometry"]))]
    page = [as_item(one) for one in every[offset : offset + limit]]
    links = [LinkOut(href=at, rel="self", type=GEOJSON)]
    if offset + limit < len(every):
        more = f"limit={limit}&offset={offset + limit}"
        if box is not None:
            more += "&bbox=" + ",".join(repr(side) for side in box.bounds)
        links.append(LinkOut(href=f"{at}?{more}", rel="next", type=GEOJSON))
    return ItemsOut(
        type="FeatureCollection", features=page, links=links, numberMatched=len(every),
        numberReturned=len(page), timeStamp=rfc3339(datetime.now(UTC)),
    ).model_dump_json(exclude_none=True)  # fmt: skip


def _here(request: Request, job_id: str, threshold: float, min_area: float) -> str:
    """The address of the landing page."""
    return f"{base(request, job_id)}/features/{threshold:g}/{min_area:g}"


def _collection(job: Job, display: Display, at: str) -> CollectionOut:
    one = f"{at}/collections/change"
    links = [LinkOut(href=one, rel="self"), LinkOut(href=f"{one}/items", rel="items", type=GEOJSON)]
    spatial = {"bbox": [list(degrees_extent(display))], "crs": CRS84}
    return CollectionOut(
        id="change", title=f"{job.name}: change", itemType="feature", crs=[CRS84],
        extent={"spatial": spatial}, links=links,
    )  # fmt: skip


def read_box(text: str | None) -> shapely.Polygon | None:
    """The `bbox` of a query."""
    if text is None:
        return None
    try:
        west, south, east, north = sides = [float(part) for part in text.split(",")]
        if not all(map(math.isfinite, sides)):
            raise ValueError(text)
        return shapely.box(west, south, east, north)
    except (ValueError, shapely.errors.ShapelyError):
        raise RefusedError(422, f"bbox {text[:60]!r} must be west,south,east,north.") from None


def as_item(feature: dict[str, Any]) -> FeatureOut:
    """A feature as the standard has it, with its id outside of the properties too."""
    return FeatureOut(
        type="Feature", id=feature["properties"]["id"], geometry=feature["geometry"],
        properties=feature["properties"],
    )  # fmt: skip
