"""The route of an adaptation: a judged job makes a new model, as a job of its own."""

from __future__ import annotations

import shutil
from pathlib import Path

from fastapi import APIRouter, Request, Response
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool

from adadino.bundled import bundled
from adadino.web.http.body import read_json
from adadino.web.http.identity import Identity
from adadino.web.http.problems import RefusedError, disk_problem, documented, first_problem
from adadino.web.http.schemas import AdaptIn, JobOut
from adadino.web.http.uploads import clean_text
from adadino.web.jobs.models import JUDGED
from adadino.web.jobs.records import Job
from adadino.web.jobs.reviews import PARTS
from adadino.web.service import Service

_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": AdaptIn.model_json_schema()}},
    }
}


def adapting_routes(service: Service) -> APIRouter:
    """Routes by which judged jobs make models."""
    router = APIRouter(prefix="/api/jobs/{job_id}/review", tags=["review"])

    @router.post(
        "/adapt",
        status_code=201,
        response_model=JobOut,
        response_model_exclude_unset=True,
        openapi_extra=_BODY,
        responses=documented(400, 404, 408, 409, 413, 422, 429, 507),
        summary="Adapt the model to a review",
    )
    async def adapt_model(request: Request, response: Response, job_id: str) -> JobOut:
        """A new job: it fits the model to what was judged, and predicts the pair again.

        The new model is kept if it is better on tiles that were held out, and is then among your
        models.
        """
        try:
            asked = AdaptIn.model_validate(await read_json(request, service.settings.limits))
        except ValidationError as error:
            raise RefusedError(422, first_problem(error)) from None
        name = clean_text(" ".join(asked.name.split()), "the model's name")
        try:
            job = await run_in_threadpool(_take, service, request.state.identity, job_id, name)
        except OSError as error:
            raise disk_problem(error) from error
        response.headers["location"] = f"/api/jobs/{job.id}"
        return service.public(job, request.state.identity)

    return router


def _take(service: Service, client: Identity, job_id: str, name: str) -> Job:
    """Copy what was judged, and put the adaptation in the queue.

    A copy: the review may go on, and the judged job may be removed.
    """
    judged, _, _ = service.finished(job_id)
    service.reviews.require(job_id)
    _check_name(service, client, name)
    _check(service, judged)
    dates = [] if judged.source == "data" else [judged.before, judged.after]
    files = [service.store.file(job_id, Path(date).name) for date in dates]
    with service.quotas.claim(client.payer, sum(file.stat().st_size for file in files)):
        identity, draft = service.store.draft()
        try:
            for file in files:
                shutil.copyfile(file, draft / file.name, follow_symlinks=False)
            _copy_review(service, job_id, draft / JUDGED)
            job = Job(
                id=identity, name=f"{judged.name} · {name}"[:200], client=client.owner,
                payer=client.payer, model=judged.model, model_of=judged.model_of, adapts=job_id,
                makes=name, source=judged.source, before=judged.before, after=judged.after,
                before_name=judged.before_name, after_name=judged.after_name,
                any_resolution=judged.any_resolution, bands=judged.bands, scale=judged.scale,
                pixels=judged.pixels,
            )  # fmt: skip
            with service.manager.models.naming:
                _check_name(service, client, name)
                service.quotas.admit(job, draft)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    service.manager.wake()
    return job


def _copy_review(service: Service, job_id: str, to: Path) -> None:
    """The review as it is now, for a worker that can then not touch the review itself."""
    to.mkdir(mode=0o700)
    with service.reviews.opened(job_id) as review:
        if not review.log.path.is_file():
            raise RefusedError(409, "nothing is judged yet; judge some polygons first.")
        for part in (*(review.folder / name for name in PARTS), review.log.path):
            shutil.copyfile(part, to / part.name, follow_symlinks=False)


def _check_name(service: Service, client: Identity, name: str) -> None:
    if service.manager.models.is_taken(name, client.owns):
        raise RefusedError(409, f"there is a model {name!r} already; choose another name.")


def _check(service: Service, judged: Job) -> None:
    """Refuse what cannot be adapted, before it waits in the queue.

    Raises:
        RefusedError: It cannot.
    """
    models = service.manager.models
    if judged.source == "demo":
        raise RefusedError(409, "the demo is not adapted to; compare two images of your own.")
    if (judged.result or {}).get("registered"):
        raise RefusedError(
            409, "the dates of this job were shifted onto each other, and the images were not; "
            "register the images themselves, compare them and judge that map.",
        )  # fmt: skip
    source = models.source(judged)
    if models.weights(judged) is None and (source is None or not _is_here(source)):
        raise RefusedError(
            409, f"{judged.model} is no checkpoint on this server's disk, and only those are "
            "adapted; compare the images with another model.",
        )  # fmt: skip


def _is_here(source: str) -> bool:
    """Whether a served model is a checkpoint that a confined worker can read."""
    if Path(source).suffix.lower() in (".onnx", ".pt2"):
        return False
    return Path(source).exists() or bundled(source) is not None
