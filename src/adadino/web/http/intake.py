"""From a request to a job in the queue."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError
from starlette.requests import Request

from adadino.web.http.body import declared_length, drain, read_json
from adadino.web.http.options import Options, check_bands, check_count, check_scale, parse_options
from adadino.web.http.problems import RefusedError, disk_problem, first_problem
from adadino.web.http.schemas import JobIn
from adadino.web.http.uploads import FILES, clean_text, receive
from adadino.web.jobs.library import find_image
from adadino.web.jobs.rasters import Facts
from adadino.web.jobs.records import Job, Source
from adadino.web.service import Service


@dataclass(frozen=True)
class Asked:
    """What a request asks for, by `before` and `after`, however it came."""

    source: Source
    files: dict[str, str]
    """As `Job.before` and `Job.after` have them."""
    names: dict[str, str]
    """What people call them."""
    facts: dict[str, Facts]
    options: Options
    model: str | None
    name: str | None


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
            return await _take(request, service, kind)
    except OSError as error:
        await drain(request)
        raise disk_problem(error) from error
    except Exception:
        await drain(request)
        raise


async def _take(request: Request, service: Service, kind: str) -> Job:
    identity, draft = service.store.draft()
    try:
        if kind == "application/json":
            asked = await _from_data(request, service)
        elif kind == "multipart/form-data":
            asked = await _from_upload(request, service, draft)
        else:
            raise RefusedError(
                415, "send multipart/form-data with two files, or application/json with paths."
            )
        job = _job(identity, asked, request, service)
        service.manager.estimates.check(service.manager.models.by_root(job))
        service.quotas.admit(job, draft)  # from here on the draft's folder is the job's
        service.manager.wake()
        return job
    finally:
        shutil.rmtree(draft, ignore_errors=True)


async def _from_data(request: Request, service: Service) -> Asked:
    try:
        asked = JobIn.model_validate(await read_json(request, service.settings.limits))
    except ValidationError as error:
        raise RefusedError(422, first_problem(error)) from None
    root = service.settings.data
    if root is None:
        raise RefusedError(
            422, "this server has no data folder (--data); upload the files instead."
        )
    paths = {"before": asked.before, "after": asked.after}
    facts = {
        which: await service.asking.probe(request, find_image(root, path), path)
        for which, path in paths.items()
    }
    options = Options(
        register=asked.register_,
        any_resolution=asked.any_resolution,
        bands=None if asked.bands is None else check_count(asked.bands, asked.bands),
        scale=None if asked.scale is None else check_scale(asked.scale, asked.scale),
    )
    names = {which: Path(path).name for which, path in paths.items()}
    return Asked("data", paths, names, facts, options, asked.model, asked.name)


async def _from_upload(request: Request, service: Service, draft: Path) -> Asked:
    upload = await receive(
        request,
        draft,
        service.settings.limits,
        lambda path, name: service.asking.probe(request, path, name, watch=False),
    )
    files = {which: path.name for which, path in upload.files.items()}
    options = parse_options(upload.fields)
    model, name = (upload.fields.get(field) for field in ("model", "name"))
    return Asked("upload", files, upload.names, upload.facts, options, model, name)


def _job(identity: str, asked: Asked, request: Request, service: Service) -> Job:
    """The job that was asked for.

    Raises:
        RefusedError, InputError: The images cannot be compared, or not so.
    """
    names = asked.files if asked.source == "data" else asked.names  # what the client wrote
    _check_sizes(asked.facts, names)
    for which in FILES:
        check_bands(asked.options.bands, asked.facts[which].bands, names[which])
    client = request.state.identity
    model = service.manager.models.find(asked.model, client.owns)
    return Job(
        id=identity, name=_title(asked), client=client.owner, payer=client.payer,
        model=model.name, model_of=model.made_by, source=asked.source,
        before=asked.files["before"], after=asked.files["after"],
        before_name=asked.names["before"], after_name=asked.names["after"],
        **asked.options._asdict(), pixels=asked.facts["before"].pixels,
    )  # fmt: skip


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


def _title(asked: Asked) -> str:
    if asked.name and asked.name.strip():
        return clean_text(asked.name.strip(), "the job's name")
    before, after = (Path(asked.names[which]).stem for which in FILES)
    return f"{before} → {after}"[:200]
