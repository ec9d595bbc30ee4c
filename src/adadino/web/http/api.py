"""The routes of jobs: ask, look, cancel, forget."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

import adadino
from adadino.web.http.intake import take_job
from adadino.web.http.problems import RefusedError, documented
from adadino.web.http.schemas import (
    ImageOut,
    ImagesOut,
    InfoOut,
    JobIn,
    JobOut,
    JobsOut,
    ModelOut,
    UploadIn,
)
from adadino.web.jobs.library import list_images
from adadino.web.service import Service

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
    """Routes that change jobs or tell of them."""
    router = APIRouter(prefix="/api", tags=["jobs"])

    @router.post(
        "/jobs",
        status_code=201,
        response_model=JobOut,
        openapi_extra=_BODY,
        responses=documented(400, 408, 413, 415, 422, 429, 507),
        summary="Compare two images",
    )
    async def create(request: Request, response: Response) -> JobOut:
        """Upload `before` and `after`, or name two files of the server's data folder."""
        job = await take_job(request, service)
        response.headers["location"] = f"/api/jobs/{job.id}"
        return service.public(job, request.state.client)

    @router.get("/jobs", response_model=JobsOut, summary="The demo and one's own jobs")
    def listing(request: Request) -> JobsOut:
        """The newest first. Others' jobs are not listed; who knows an id may open it."""
        client = request.state.client
        own = [job for job in service.store.all() if job.client in (client, "demo")]
        return JobsOut(jobs=[service.public(job, client) for job in own])

    @router.get(
        "/jobs/{job_id}", response_model=JobOut, responses=documented(404), summary="One job"
    )
    def show(job_id: str, request: Request) -> JobOut:
        """State, progress with time left, place in the queue, map and warnings."""
        return service.public(service.store.get(job_id), request.state.client)

    @router.delete(
        "/jobs/{job_id}",
        status_code=204,
        responses=documented(403, 404, 409),
        summary="Forget a job",
    )
    def delete(job_id: str, request: Request) -> None:
        """End it if it runs, and delete all of its files."""
        _check_owner(service, job_id, request.state.client)
        service.manager.remove(job_id)

    @router.post(
        "/jobs/{job_id}/cancel",
        response_model=JobOut,
        responses=documented(403, 404, 409),
        summary="End a job",
    )
    def cancel(job_id: str, request: Request) -> JobOut:
        """What it has made so far goes; a job that has ended stays as it is."""
        _check_owner(service, job_id, request.state.client)
        return service.public(service.manager.cancel(job_id), request.state.client)

    return router


def _check_owner(service: Service, job_id: str, client: str) -> None:
    """Whoever has a job's link may look at it; only who asked for it may end it."""
    job = service.store.get(job_id)
    if job.source == "demo":
        raise RefusedError(409, "the demo is everybody's and stays.")
    if job.client != client:
        raise RefusedError(403, "only who asked for a job may end it.")


def info_routes(service: Service) -> APIRouter:
    """Routes that tell of the server."""
    router = APIRouter(tags=["server"])

    @router.get("/api/info", response_model=InfoOut, summary="Models, device and limits")
    def info() -> InfoOut:
        """What the page needs to know before it offers anything."""
        ready, limits = service.manager.ready, service.settings.limits
        speeds = ready.speeds if ready else {}
        return InfoOut(
            version=adadino.__version__,
            ready=ready is not None,
            device=ready.device if ready else None,
            device_name=ready.device_name if ready else None,
            models=[
                ModelOut(name=choice.name, mp_per_s=speeds.get(choice.name))
                for choice in service.settings.models
            ],
            limits={"upload_bytes": limits.upload_bytes, "pixels": limits.pixels},
            basemap=service.settings.basemap,
            data=service.settings.data is not None,
        )

    @router.get("/api/files", response_model=ImagesOut, summary="Images of the data folder")
    async def files() -> ImagesOut:
        """What `POST /api/jobs` takes by path."""
        root = service.settings.data
        if root is None:
            return ImagesOut(available=False, files=[])
        names = await run_in_threadpool(list_images, root)
        found = [ImageOut(path=name, bytes=(root / name).stat().st_size) for name in names]
        return ImagesOut(available=True, files=found)

    @router.get("/healthz", summary="Whether the server answers")
    def health() -> dict[str, str]:
        """For a supervisor; needs no token."""
        return {"status": "ok"}

    @router.get(
        "/metrics",
        response_class=Response,
        responses={200: {"content": {"text/plain": {}}}},
        summary="Numbers for Prometheus",
    )
    def metrics() -> Any:
        """Requests, jobs by state, worker crashes."""
        text = service.metrics.text(service.manager, service.store.all())
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    return router
