"""From a request to a job in the queue."""

from __future__ import annotations

import shutil
from pathlib import Path

from pydantic import ValidationError
from starlette.requests import Request

from adadino.web.http.body import declared_length, drain, read_json
from adadino.web.http.options import (
    check_bands,
    check_scale,
    parse_bands,
    parse_register,
    parse_scale,
)
from adadino.web.http.problems import RefusedError, disk_problem
from adadino.web.http.schemas import JobIn
from adadino.web.http.uploads import clean_text, receive
from adadino.web.jobs.library import find_image
from adadino.web.jobs.rasters import Facts
from adadino.web.jobs.records import Job
from adadino.web.service import Service


async def take_job(request: Request, service: Service) -> Job:
    """Read what was asked for, check it, and put it in the queue.

    Raises:
        RefusedError: The request is not served.
        InputError: The images are not taken.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    limits, payer = service.settings.limits, request.state.identity.payer
    # A body that does not say how long it is may be as long as one may be.
    size = 0 if kind == "application/json" else declared_length(request) or limits.upload_bytes
    try:
        with service.quotas.claim(payer, min(size, limits.upload_bytes)):
            if kind == "application/json":
                return await _from_data(request, service)
            if kind == "multipart/form-data":
                return await _from_upload(request, service)
    except OSError as error:
        await drain(request)
        raise disk_problem(error) from error
    except Exception:
        await drain(request)
        raise
    await drain(request)
    raise RefusedError(
        415, "send multipart/form-data with two files, or application/json with paths."
    )


async def _from_data(request: Request, service: Service) -> Job:
    try:
        asked = JobIn.model_validate(await read_json(request, service.settings.limits))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the body"
        raise RefusedError(422, f"{where}: {first['msg']}.") from None
    root = service.settings.data
    if root is None:
        raise RefusedError(
            422, "this server has no data folder (--data); upload the files instead."
        )
    facts = {}
    for name in (asked.before, asked.after):
        path = find_image(root, name)
        facts[name] = await service.asking.probe(request, path, name)
        check_bands(asked.bands, facts[name].bands, name)
    dates = {"before": asked.before, "after": asked.after}
    _check_sizes({which: facts[name] for which, name in dates.items()}, dates)
    if asked.bands is not None and len(asked.bands) == 2:
        raise RefusedError(422, "bands must be three band numbers, or one to repeat: [3, 2, 1].")
    scale = check_scale(asked.scale, asked.scale)
    model = _model(asked.model, service)
    name = _title(asked.name, asked.before, asked.after)
    identity, draft = service.store.draft()
    try:
        job = Job(
            id=identity, name=name, client=request.state.identity.owner,
            payer=request.state.identity.payer, model=model, source="data",
            before=asked.before, after=asked.after, before_name=Path(asked.before).name,
            after_name=Path(asked.after).name, register=asked.register_, bands=asked.bands,
            scale=scale, pixels=facts[asked.before].pixels,
        )  # fmt: skip
        return _queued(job, draft, service)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


async def _from_upload(request: Request, service: Service) -> Job:
    identity, draft = service.store.draft()
    try:
        upload = await receive(
            request,
            draft,
            service.settings.limits,
            lambda path, name: service.asking.probe(request, path, name, watch=False),
        )
        _check_sizes(upload.facts, upload.names)
        names, fields = upload.names, upload.fields
        bands = parse_bands(fields.get("bands"))
        for which in ("before", "after"):  # not in the order in which they were done
            check_bands(bands, upload.facts[which].bands, names[which])
        job = Job(
            id=identity, client=request.state.identity.owner,
            payer=request.state.identity.payer, source="upload",
            name=_title(fields.get("name"), names["before"], names["after"]),
            model=_model(fields.get("model"), service),
            before=upload.files["before"].name, after=upload.files["after"].name,
            before_name=names["before"], after_name=names["after"],
            register=parse_register(fields.get("register")), bands=bands,
            scale=parse_scale(fields.get("scale")), pixels=upload.facts["before"].pixels,
        )  # fmt: skip
        return _queued(job, draft, service)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def _check_sizes(facts: dict[str, Facts], names: dict[str, str]) -> None:
    """What cannot be compared is said now, not after a wait in the queue."""
    before, after = facts["before"], facts["after"]
    if (before.crs is None) != (after.crs is None):
        without = names["before" if before.crs is None else "after"]
        raise RefusedError(
            422, f"only {without} has no coordinate system; georeference both or none."
        )
    if before.crs is None and before[:2] != after[:2]:
        raise RefusedError(
            422,
            f"{names['before']} is {before.width} x {before.height} pixels and {names['after']} "
            f"{after.width} x {after.height}, and neither has coordinates to align them by.",
        )


def _queued(job: Job, draft: Path, service: Service) -> Job:
    """Put a job in the queue, if it can be done in the time and on the disk that there is."""
    service.manager.estimates.check(job)
    service.quotas.admit(job, draft)
    service.manager.wake()
    return job


def _model(name: str | None, service: Service) -> str:
    names = [choice.name for choice in service.settings.models]
    if not name:
        return names[0]
    if name not in names:
        raise RefusedError(
            422, f"there is no model {name[:100]!r} here; choose {', '.join(names)}."
        )
    return name


def _title(name: str | None, before: str, after: str) -> str:
    if name and name.strip():
        return clean_text(name.strip(), "the job's name")
    return f"{Path(before).stem} → {Path(after).stem}"[:200]
