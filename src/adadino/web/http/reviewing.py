"""The routes of a review: begin it, look at it, act, take the verdicts away."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from fastapi import APIRouter, Request
from fastapi.responses import FileResponse, Response
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool

from adadino.web.http.body import read_json
from adadino.web.http.identity import Identity
from adadino.web.http.problems import RefusedError, documented, first_problem
from adadino.web.http.results import GPKG, THRESHOLD, TIFF, Made, MinArea, Threshold, send
from adadino.web.http.schemas import ActionIn, ReviewOut, ReviewStateOut
from adadino.web.jobs.reviews import LOG_BYTES, is_full, told
from adadino.web.service import Service

ACTION_BYTES = 2**20
"""An outline may have twenty thousand corners."""
AT_ONCE = 4
"""Threads that read and write reviews; whoever waits for one takes none from tiles and pages."""
FILES = (
    Made("verdicts.gpkg", "verdicts", "verdicts.gpkg", GPKG, "get_verdicts",
         "The verdicts as GeoPackage",
         "All polygons and drawings with verdict, note, judged_by and judged_at."),
    Made("corrected.tif", "corrected", "corrected.tif", TIFF, "get_corrected_mask",
         "The corrected mask as a COG",
         "The map without what is wrong and with what was missed."),
)  # fmt: skip
_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": ActionIn.model_json_schema()}},
    }
}


def review_routes(service: Service) -> APIRouter:
    """Routes by which people judge the map of a finished job."""
    router = APIRouter(prefix="/api/jobs/{job_id}/review", tags=["review"])
    turns = asyncio.Semaphore(AT_ONCE)

    async def in_turn(work: Callable[[], str]) -> Response:
        async with turns:
            return Response(await run_in_threadpool(work), media_type="application/json")

    @router.post(
        "",
        response_model=ReviewOut,
        responses=documented(404, 409, 422, 503, 507),
        summary="Begin a review",
    )
    async def start_review(
        request: Request, job_id: str, threshold: Threshold = THRESHOLD, min_area: MinArea = 0.0
    ) -> Response:
        """Of the map at a threshold; a review that was begun before goes on as it is."""
        service.finished(job_id)
        if not service.reviews.exists(job_id):
            options = {"threshold": threshold, "min_area": min_area}

            def adopt(path: Path) -> None:
                service.reviews.adopt(job_id, path.parent)

            await service.asking.made(request, job_id, "review", "review.json", options, adopt)
        return await in_turn(lambda: _told(service, request, job_id))

    @router.get("", response_model=ReviewOut, responses=documented(404, 409), summary="A review")
    async def get_review(request: Request, job_id: str) -> Response:
        """Polygons in the order to judge them, verdicts, drawings, counts and precision."""
        return await in_turn(lambda: _told(service, request, job_id))

    @router.post(
        "/actions",
        response_model=ReviewStateOut,
        openapi_extra=_BODY,
        responses=documented(400, 404, 408, 409, 413, 422, 507),
        summary="Judge, draw or undo",
    )
    async def act_on_review(request: Request, job_id: str) -> Response:
        """Kept on disk before the answer. The same `key` twice is one action."""
        given = await read_json(request, service.settings.limits, most=ACTION_BYTES)
        try:
            action = ActionIn.model_validate(given)
        except ValidationError as error:
            raise RefusedError(422, first_problem(error)) from None
        return await in_turn(lambda: _act(service, request, job_id, action))

    for made in FILES:
        _add_file(router, service, made)
    return router


def _add_file(router: APIRouter, service: Service, made: Made) -> None:
    async def route(request: Request, job_id: str) -> FileResponse:
        service.finished(job_id)
        service.reviews.require(job_id)
        return await send(service, request, job_id, made, {})

    router.add_api_route(f"/{made.path}", route, **made.told)


def _act(service: Service, request: Request, job_id: str, action: ActionIn) -> str:
    _, _, display = service.finished(job_id)
    data, by = action.model_dump(exclude={"key"}, exclude_none=True), reviewer(request)
    with service.reviews.opened(job_id) as review:
        if is_full(review):
            raise RefusedError(
                507, f"this review has {LOG_BYTES // 2**20} MB of actions, and the server keeps no "
                "more; download the verdicts and begin another job.",
            )  # fmt: skip
        if action.geometry is not None and display.native:
            try:
                data["geometry"] = review.to_pixels(action.geometry)
            except Exception as error:  # shapely's and numpy's own, for whatever was sent
                raise RefusedError(422, "the outline is no polygon; draw it again.") from error
        review.act(data, by=by, key=action.key)
        return ReviewStateOut(**told(review, display, by, whole=False)).model_dump_json()


def _told(service: Service, request: Request, job_id: str) -> str:
    _, _, display = service.finished(job_id)
    with service.reviews.opened(job_id) as review:
        said = told(review, display, reviewer(request), whole=True)
        return ReviewOut(**said).model_dump_json()


def reviewer(request: Request) -> str:
    """The name in the log: the token's, or one that tells visitors without names apart."""
    identity: Identity = request.state.identity
    return identity.name or f"visitor {identity.owner[:12]}"  # fewer, and somebody has the same
