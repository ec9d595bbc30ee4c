"""The routes of jobs: ask, look, cancel, forget."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from starlette.concurrency import run_in_threadpool

import adadino
from adadino.web.http.identity import Identity
from adadino.web.http.intake import take_job
from adadino.web.http.problems import RefusedError, documented
from adadino.web.http.schemas import (
    FactsOut,
    ImageOut,
    ImagesOut,
    InfoOut,
    JobIn,
    JobOut,
    JobsOut,
    UploadIn,
)
from adadino.web.jobs.library import find_image, list_images
from adadino.web.service import Service

FilePath = Annotated[str, Query(max_length=1000, description="A path from /api/files.")]
_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": JobIn.model_json_schema()},
            "multipart/form-data": {"schema": UploadIn.model_json_schema()},
        },
    }
}


def job_routes(service: Service) -> APIRouter:
    """Routes that take jobs and tell of them."""
    router = APIRouter(prefix="/api", tags=["jobs"])

    @router.post(
        "/jobs",
        status_code=201,
        response_model=JobOut,
        response_model_exclude_unset=True,
        openapi_extra=_BODY,
        responses=documented(400, 408, 413, 415, 422, 429, 507),
        summary="Compare two images",
    )
    async def create_job(request: Request, response: Response) -> JobOut:
        """Upload `before` and `after`, or name two files of the server's data folder."""
        job = await take_job(request, service)
        response.headers["location"] = f"/api/jobs/{job.id}"
        return service.public(job, request.state.identity)

    @router.get(
        "/jobs",
        response_model=JobsOut,
        response_model_exclude_unset=True,
        summary="The demo and one's own jobs",
    )
    def list_jobs(request: Request) -> JobsOut:
        """The newest first. Others' jobs are not listed; who knows an id may open it."""
        identity = request.state.identity
        own = [
            job for job in service.store.all() if identity.owns(job.client) or job.client == "demo"
        ]
        return JobsOut(jobs=[service.public(job, identity) for job in own])

    @router.get(
        "/jobs/{job_id}",
        response_model=JobOut,
        response_model_exclude_unset=True,  # a result of 0.1.0 has fewer fields
        responses=documented(404),
        summary="One job",
    )
    def get_job(job_id: str, request: Request) -> JobOut:
        """State, progress with time left, place in the queue, map and warnings."""
        return service.public(service.store.get(job_id), request.state.identity)

    return router


def ending_routes(service: Service) -> APIRouter:
    """Routes that end jobs, for those who asked for them."""
    router = APIRouter(prefix="/api", tags=["jobs"])

    @router.delete(
        "/jobs/{job_id}",
        status_code=204,
        responses=documented(403, 404, 409),
        summary="Forget a job",
    )
    def delete_job(job_id: str, request: Request) -> None:
        """End it if it runs, and delete all of its files."""
        _check_owner(service, job_id, request.state.identity)
        service.manager.remove(job_id)

    @router.post(
        "/jobs/{job_id}/cancel",
        response_model=JobOut,
        response_model_exclude_unset=True,
        responses=documented(403, 404, 409),
        summary="End a job",
    )
    def cancel_job(job_id: str, request: Request) -> JobOut:
        """What it has made so far goes; a job that has ended stays as it is."""
        _check_owner(service, job_id, request.state.identity)
        return service.public(service.manager.cancel(job_id), request.state.identity)

    return router


def _check_owner(service: Service, job_id: str, identity: Identity) -> None:
    """Whoever has a job's link may look at it; only who asked for it may end it."""
    job = service.store.get(job_id)
    if job.source == "demo":
        raise RefusedError(409, "the demo is everybody's and stays.")
    if not identity.owns(job.client):
        raise RefusedError(403, "only who asked for a job may end it.")


def _data_file(service: Service, path: str) -> Path:
    root = service.settings.data
    if root is None:
        raise RefusedError(422, "this server has no data folder (--data).")
    return find_image(root, path)


def info_routes(service: Service) -> APIRouter:
    """Routes that tell of the server."""
    router = APIRouter(tags=["server"])

    @router.get("/api/info", response_model=InfoOut, summary="Models, device and limits")
    def get_info(request: Request) -> InfoOut:
        """What the page needs to know before it offers anything."""
        ready, limits = service.manager.ready, service.settings.limits
        return InfoOut(
            version=adadino.__version__,
            ready=ready is not None,
            device=ready.device if ready else None,
            device_name=ready.device_name if ready else None,
            models=[
                service.model(chosen)
                for chosen in service.manager.models.all(request.state.identity.owns)
            ],
            limits={
                "upload_bytes": limits.upload_bytes,
                "pixels": limits.pixels,
                "job_s": limits.job_s,
            },
            tokens=bool(service.settings.tokens),
            who=request.state.identity.name,
            basemap=service.settings.basemap,
            data=service.settings.data is not None,
        )

    @router.get("/healthz", summary="Whether the server answers")
    async def get_health() -> dict[str, str]:
        """For a supervisor; needs no token, and waits for nobody."""
        return {"status": "ok"}

    @router.get(
        "/metrics",
        response_class=Response,
        responses={200: {"content": {"text/plain": {}}}},
        summary="Numbers for Prometheus",
    )
    def get_metrics() -> Any:
        """Requests, jobs by state, worker crashes."""
        text = service.metrics.text(service.manager, service.store.all())
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    return router


def file_routes(service: Service) -> APIRouter:
    """Routes that tell of the server's data folder."""
    router = APIRouter(tags=["server"])

    @router.get("/api/files", response_model=ImagesOut, summary="Images of the data folder")
    async def list_files() -> ImagesOut:
        """What `POST /api/jobs` takes by path."""
        root = service.settings.data
        if root is None:
            return ImagesOut(available=False, files=[])
        names = await run_in_threadpool(list_images, root)
        found = [ImageOut(path=name, bytes=(root / name).stat().st_size) for name in names]
        return ImagesOut(available=True, files=found)

    @router.get(
        "/api/files/facts",
        response_model=FactsOut,
        responses=documented(422, 503),
        summary="Size, bands and CRS of an image of the data folder",
    )
    async def get_file_facts(request: Request, path: FilePath) -> FactsOut:
        """From its header alone."""
        found = await service.asking.probe(request, _data_file(service, path), path)
        return FactsOut(**found._asdict(), pixels=found.pixels)

    @router.get(
        "/api/files/preview.png",
        response_class=Response,
        responses={
            200: {"content": {"image/png": {"schema": {"type": "string", "format": "binary"}}}},
            **documented(422, 503),
        },
        summary="A small picture of an image of the data folder",
    )
    async def get_file_preview(request: Request, path: FilePath) -> Response:
        """At most 256 pixels a side, stretched by its own values."""
        picture = await service.asking.preview(request, _data_file(service, path), path)
        return Response(picture, media_type="image/png")

    return router
