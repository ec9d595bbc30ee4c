"""What a worker does: one task in one process, confined to the files of that task.

A task is a dictionary with a `kind`, and `reach`, what it may touch. The answers are lines of JSON:
`started` with the protections that hold, events of the task itself, then `done` or `failed`.
"""

from __future__ import annotations

import errno
import json
import re
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from adadino.errors import AdaDINOError, WriteError
from adadino.web.jobs.sandbox import Reach, confine

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""What the system says when a disk, a quota or a limit is full."""
Tell = Callable[..., None]


@dataclass
class Held:
    """What a parent has ready for its workers."""

    setup: dict[str, Any]
    models: dict[str, Any] = field(default_factory=dict)
    """Loaded models by name, on the CPU; the path of one that was exported."""
    threads: int = 1
    """Threads that a worker may compute with; the parent itself must not start any."""


def preload(setup: dict[str, Any]) -> None:
    """Import what workers of a kind need, so that none of them has to."""
    import geopandas  # noqa: F401
    import pyogrio
    import rasterio

    import adadino.web.view.change
    import adadino.web.view.views

    with rasterio.Env():  # registers GDAL's drivers, those that are left
        pyogrio.list_drivers()
    if setup["kind"] == "model":
        import adadino.scene
        import adadino.web.jobs.adapt  # noqa: F401


def prepare(setup: dict[str, Any]) -> Held:
    """Load the models, if these are workers that predict.

    Raises:
        AdaDINOError: A model cannot be loaded.
    """
    if setup["kind"] != "model":
        return Held(setup)
    from adadino.web.jobs.predict import load_models

    return load_models(setup)


def work(task: dict[str, Any], held: Held, said: IO[str]) -> None:
    """Confine this process, do a task and say how it went."""

    def tell(**event: object) -> None:
        said.write(json.dumps(event, allow_nan=False) + "\n")

    given = task.pop("reach")
    paths = {name: tuple(map(Path, given[name])) for name in ("read", "write")}
    holds = confine(Reach(**given | paths))
    tell(event="started", held=holds)
    names: dict[str, str] = task.pop("names", {})
    warnings.simplefilter("ignore")  # a result has those that matter, and the page says them
    try:
        answer = _KINDS[task.pop("kind")](task, held, tell)
    except Exception as error:
        # One without a cause is ours: a name or a format that will not do.
        written = isinstance(error, WriteError) and error.__cause__ is not None
        disk = written or _is_full(error)
        tell(event="failed", error=named(sentence(error), names), disk=disk)
    else:
        tell(event="done", **answer)


def sentence(error: BaseException) -> str:
    """What to tell of an error."""
    if isinstance(error, AdaDINOError):
        return str(error)
    if _is_full(error):
        why = getattr(error, "strerror", None)
        return f"the server's disk is full ({why}); remove jobs and start it again."
    if isinstance(error, MemoryError):
        return "there is not enough memory for it (--max-job-memory); cut the scene."
    traceback.print_exception(error)
    return f"an unexpected {type(error).__name__} ended the job; the server's log tells more."


def named(text: str, names: dict[str, str]) -> str:
    """A sentence in the user's names: paths of the server are nobody's business."""
    for path, name in names.items():
        text = text.replace(path, name)
    text = text.replace("--any-resolution", "any resolution")  # the page has them as fields
    return re.sub(r"--(bands|scale|register)\b", r"\1", text)


def _is_full(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in FULL


def _probe(task: dict[str, Any], held: Held, tell: Tell) -> dict[str, Any]:
    from adadino.web.jobs.rasters import read_facts

    return {"facts": read_facts(Path(task["path"]), task["name"])._asdict()}


def _preview(task: dict[str, Any], held: Held, tell: Tell) -> dict[str, Any]:
    from adadino.web.view.views import write_preview

    write_preview(Path(task["path"]), task["name"], Path(task["output"]))
    return {}


def _view(task: dict[str, Any], held: Held, tell: Tell) -> dict[str, Any]:
    """A file of a finished job: its map at a threshold, or what people said of it."""
    from adadino.web.view import change
    from adadino.web.view.display import Display

    writers: dict[str, Callable[..., None]] = {
        "cut": change.write_cut, "mask": change.write_mask, "polygons": change.write_polygons,
        "picture": change.write_picture, "review": change.write_review,
        "verdicts": change.write_verdicts, "corrected": change.write_corrected,
    }  # fmt: skip
    writers[task["what"]](
        Path(task["folder"]),
        Display.from_dict(task["view"]),
        Path(task["output"]),
        **task["options"],
    )
    return {}


def _predict(task: dict[str, Any], held: Held, tell: Tell) -> dict[str, Any]:
    from adadino.web.jobs.predict import predict_job

    return predict_job(task, held, tell)


def _adapt(task: dict[str, Any], held: Held, tell: Tell) -> dict[str, Any]:
    from adadino.web.jobs.adapt import adapt_job

    return adapt_job(task, held, tell)


def _measure(task: dict[str, Any], held: Held, tell: Tell) -> dict[str, Any]:
    from adadino.web.jobs.predict import measure

    return measure(task["model"], held)


_KINDS: dict[str, Callable[[dict[str, Any], Held, Tell], dict[str, Any]]] = {
    "probe": _probe, "preview": _preview, "view": _view, "predict": _predict, "adapt": _adapt,
    "measure": _measure,
}  # fmt: skip
