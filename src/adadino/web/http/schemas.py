"""What the API answers, as the OpenAPI document has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from adadino.review.actions import Do, Origin, Verdict
from adadino.web.jobs.records import Found, Job, Source, State
from adadino.web.view.display import Display

Band = Annotated[int, Field(ge=1, le=99_999)]
Value = Annotated[float, Field(allow_inf_nan=False)]
_BANDS = "Red, green and blue, counted from 1; or one, which is repeated."
_SCALE = "Raw values that are black and white, instead of a stretch over both dates."
_ANY = "Predict whatever the ground resolution that the model was trained for."
_REGISTER = "Apply the estimated shift between the dates, if it is reliable."


class Progress(BaseModel):
    """How far a running job is."""

    phase: Literal["adapting", "opening", "preparing", "predicting", "writing"]
    done: int = Field(
        description="Tiles finished, or units of work of an adaptation; 0 in other phases."
    )
    total: int = Field(description="All of them; 0 in other phases.")
    tiles_per_s: float | None
    mp_per_s: float | None = Field(description="Megapixels of the scene per second.")
    eta_s: float | None = Field(description="Seconds left of this phase.")


class JobOut(BaseModel):
    """A job: what was asked for, how far it is, where it lies and what was found."""

    id: str
    name: str
    model: str
    before_name: str
    after_name: str
    source: Source
    register_: bool = Field(alias="register", description="Whether a reliable shift is applied.")
    any_resolution: bool
    bands: list[int] | None = Field(description="What was chosen; None is by colour.")
    scale: list[float] | None = Field(description="What was chosen; None is by both dates.")
    adapts: str = Field(description="The judged job that an adaptation starts from, or empty.")
    makes: str = Field(description="What an adaptation calls its model, or empty.")
    pixels: int
    state: State
    created: float = Field(description="Seconds since 1970.")
    started: float | None
    ended: float | None
    error: str | None
    place: int | None = Field(description="Jobs before this one, if it waits.")
    estimate_s: float | None = Field(
        description="How long it takes, by the model's measured speed."
    )
    progress: Progress | None
    view: Display | None = Field(description="Extent, levels and CRS of the map.")
    result: Found | None = Field(description="Change, shift and warnings.")
    own: bool = Field(description="Whether this client asked for it.")
    reviewed: bool = Field(description="Whether somebody has begun to judge its map.")

    @classmethod
    def of(cls, job: Job, **more: Any) -> JobOut:
        """The public side of a job."""
        hidden = {"client", "payer", "before", "after", "attempts", "mark", "model_of"}
        known = {k: v for k, v in vars(job).items() if k not in hidden}
        return cls(**known, **more)


class JobsOut(BaseModel):
    """The demo and one's own jobs, the newest first."""

    jobs: list[JobOut]


class JobIn(BaseModel):
    """A job on two images of the server's data folder."""

    model_config = ConfigDict(extra="forbid", strict=True)
    before: str = Field(max_length=1000, description="A path from /api/files.")
    after: str = Field(max_length=1000, description="Another one.")
    model: str | None = Field(None, max_length=200, description="A name from /api/info.")
    bands: list[Band] | None = Field(None, min_length=1, max_length=3, description=_BANDS)
    scale: list[Value] | None = Field(None, min_length=2, max_length=2, description=_SCALE)
    register_: bool = Field(False, alias="register", description=_REGISTER)
    any_resolution: bool = Field(False, description=_ANY)
    name: str | None = Field(None, max_length=200)


class UploadIn(BaseModel):
    """A job on two images that come with the request."""

    before: bytes = Field(json_schema_extra={"format": "binary"})
    after: bytes = Field(json_schema_extra={"format": "binary"})
    model: str | None = Field(None, max_length=200)
    bands: str | None = Field(None, max_length=200, description=f"{_BANDS} As text: 3,2,1.")
    scale: str | None = Field(None, max_length=200, description=f"{_SCALE} As text: 0,3000.")
    register_: bool = Field(False, alias="register", description=_REGISTER)
    any_resolution: bool = Field(False, description=_ANY)
    name: str | None = Field(None, max_length=200)


class AdaptIn(BaseModel):
    """A model to make from a judged job."""

    model_config = ConfigDict(extra="forbid", strict=True)
    name: str = Field(
        min_length=1, max_length=40, pattern=r"\S", description="What to call the new model."
    )


class ImageOut(BaseModel):
    """An image of the data folder."""

    path: str
    bytes: int


class ImagesOut(BaseModel):
    """The data folder, if there is one."""

    available: bool
    files: list[ImageOut]


class FactsOut(BaseModel):
    """What an image's header says."""

    width: int
    height: int
    bands: int
    kind: str
    crs: str | None
    pixels: int


class ModelOut(BaseModel):
    """A model to choose."""

    name: str
    own: bool = Field(description="Whether you have adapted it; only you see it.")
    mp_per_s: float | None = Field(description="Megapixels per second here; None while it loads.")
    overhead_s: float | None = Field(description="Seconds a job takes beside its pixels.")


class InfoOut(BaseModel):
    """What this server is."""

    version: str
    ready: bool = Field(description="Whether the models are loaded.")
    device: str | None = Field(description="cpu, cuda or mps.")
    device_name: str | None
    models: list[ModelOut]
    limits: dict[str, float]
    tokens: bool = Field(description="Whether the server wants a token.")
    who: str | None = Field(description="The name of the token one came with.")
    basemap: str | None
    data: bool


class Feature(BaseModel):
    """A polygon of change."""

    type: Literal["Feature"]
    id: int
    geometry: dict[str, Any]
    properties: dict[str, float]


class PolygonsOut(BaseModel):
    """GeoJSON in map coordinates, with what belongs to it."""

    type: Literal["FeatureCollection"]
    features: list[Feature] = Field(description="The largest first; at most 5000.")
    count: int = Field(description="All polygons, also those beyond the list.")
    area: float = Field(description="Their area, in `unit`; columns are named by it.")
    unit: Literal["m2", "px"]
    change_fraction: float = Field(description="Share of the valid area that these cover.")
    step: int = Field(description="Pixels per traced pixel: above 1, outlines are approximate.")
    threshold: float
    min_area: float
    coordinates: str


class ActionIn(BaseModel):
    """What a reviewer does."""

    model_config = ConfigDict(extra="forbid", strict=True)
    do: Do = Field(description="Undo and redo are about one's own actions.")
    shape: int | None = Field(None, description="A polygon, or a drawing.")
    verdict: Verdict | None = None
    note: str | None = Field(None, max_length=2000)
    list: Origin = Field("picked", description="How the reviewer came to the polygon.")
    geometry: dict[str, Any] | None = Field(
        None, description="A GeoJSON Polygon or MultiPolygon in coordinates of the map."
    )
    key: str = Field("", max_length=100, description="The client's own name of the action.")


class JudgedOut(BaseModel):
    """The verdict on a polygon."""

    verdict: Verdict
    by: str
    at: str
    list: Origin
    others: Sequence[tuple[str, Verdict]] = Field(description="All verdicts, where they differ.")


class DrawingOut(BaseModel):
    """An outline that a reviewer drew, in coordinates of the map."""

    geometry: dict[str, Any]
    by: str
    at: str


class ReviewStateOut(BaseModel):
    """What all actions of a review amount to; polygons and drawings by their ids."""

    you: str = Field(description="The name under which your actions are kept.")
    undo: int = Field(description="How many of your actions can be taken back.")
    redo: int
    verdicts: dict[str, JudgedOut]
    notes: dict[str, str]
    reshaped: dict[str, DrawingOut] = Field(description="Polygons that have another outline now.")
    missed: dict[str, DrawingOut] = Field(description="Changes that the map lacks.")
    unchanged: dict[str, DrawingOut] = Field(description="Areas where nothing changed.")
    summary: dict[str, Any] = Field(
        description="Counts, and the precision of the random sample with its 95 % interval."
    )


class ProposalOut(BaseModel):
    """A polygon to judge, and the list it comes from."""

    id: int
    list: Literal["random", "uncertain"]


class ReviewOut(ReviewStateOut):
    """A review with its polygons."""

    threshold: float
    unit: Literal["m2", "px"]
    proposals: Sequence[ProposalOut] = Field(
        description="At most 5000, in the order to judge them."
    )
    polygons: Sequence[dict[str, Any]] = Field(description="GeoJSON features, in the same order.")
