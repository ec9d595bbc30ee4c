"""A job as it is kept on disk: `job.json` in its folder, written whole or not at all."""

from __future__ import annotations

import dataclasses
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from adadino.files import write_atomic
from adadino.web.view.display import Display

State = Literal["queued", "running", "done", "failed", "cancelled"]
Source = Literal["upload", "data", "demo"]
ENDED: frozenset[State] = frozenset({"done", "failed", "cancelled"})
RECORD = "job.json"
RESULT = "result.json"
"""What was found; when it is there, the job is done."""


class ShiftFound(BaseModel):
    """The shift between the dates."""

    dy: float
    dx: float
    confidence: float
    problem: str | None = None


class AdaptedFound(BaseModel):
    """Both models on tiles that were held out in turn."""

    kept: Literal["new", "old"]
    """Which model made the map."""
    tiles: int
    folds: int
    old_f1: float
    new_f1: float
    difference: float
    """F1 of the new one minus F1 of the old one."""
    low: float
    high: float
    """Its 95 % interval."""
    seconds: float
    sentence: str


class Found(BaseModel):
    """What was found, as `result.json` has it."""

    model_config = ConfigDict(extra="allow")
    change_fraction: float
    warnings: list[str] = Field(default_factory=list)
    shift: ShiftFound | None = None
    registered: bool = False
    device: str | None = None
    seconds: float | None = None
    domain: str | None = None
    """How the ground resolution lies outside what the model knows."""
    ahead: bool = False
    """Whether it comes with the package."""
    adapted: AdaptedFound | None = None
    """How the new model compares with the old one, if the job made one."""


@dataclass(frozen=True)
class Job:
    """What was asked for and how far it is."""

    id: str
    """Unguessable: whoever knows it may see the job."""
    name: str
    client: str
    """Who asked, as a digest; for the list of one's own jobs."""
    model: str
    """The model's name; of an adaptation, the one it starts from."""
    before: str
    """A file of the job's folder, or a path under the data folder."""
    after: str
    before_name: str
    after_name: str
    source: Source
    payer: str = ""
    """Whose limits and turns count, as a digest."""
    mark: str = ""
    """Which model exactly, for the demo: another one makes another demo."""
    register: bool = False
    any_resolution: bool = False
    bands: list[int] | None = None
    scale: list[float] | None = None
    """These four as in `SceneOptions`."""
    model_of: str = ""
    """The job that made the model; empty for one of the server's own."""
    adapts: str = ""
    """The judged job whose map an adaptation starts from; empty for a comparison."""
    makes: str = ""
    """What an adaptation calls its model."""
    pixels: int = 0
    """Of `before`: an estimate of the scene's size."""
    state: State = "queued"
    created: float = field(default_factory=time.time)
    started: float | None = None
    ended: float | None = None
    attempts: int = 0
    """How often a worker began; a job that takes the worker down is not tried for ever."""
    error: str | None = None
    view: dict[str, Any] | None = None
    """Where the scene lies, as soon as it can be shown."""
    result: dict[str, Any] | None = None
    """What was found."""

    def having(self, **changes: Any) -> Job:
        """The job with some fields changed."""
        return dataclasses.replace(self, **changes)


_JOB, _VIEW = TypeAdapter(Job), TypeAdapter(Display)


def write_record(folder: Path, job: Job) -> None:
    """Keep a job."""
    write_atomic(folder / RECORD, json.dumps(dataclasses.asdict(job), indent=1))


def read_record(folder: Path) -> Job | None:
    """The job of a folder; None if it is not one of ours."""
    try:
        found = json.loads((folder / RECORD).read_text())
        known = {entry.name for entry in dataclasses.fields(Job)}
        given = {name: found[name] for name in known & found.keys()}
        job = _JOB.validate_json(json.dumps(given), strict=True)
        if job.view is not None:
            check_view(job.view)
        if job.result is not None:
            Found.model_validate(job.result)
    except (OSError, ValueError, TypeError, AttributeError, KeyError, RecursionError):
        return None
    return job if job.id == folder.name else None


def check_view(view: dict[str, Any]) -> None:
    """Refuse a view that nothing can be drawn by.

    Raises:
        ValueError, TypeError, KeyError: It is one.
    """
    found = Display.from_dict(view)
    _VIEW.validate_json(json.dumps(view), strict=True)
    sizes = (found.width, found.height, found.resolution, found.levels)
    if len(found.transform) != 6:
        raise ValueError(f"the view has a transform of {len(found.transform)} numbers")
    pixel = (found.transform[0], -found.transform[4]) if found.native else (1.0, 1.0)
    if not all(0 < value < 1e15 for value in (*sizes, *pixel)):
        raise ValueError(f"the view has sizes {sizes} and pixels {pixel}")
