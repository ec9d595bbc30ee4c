"""What standard services answer: TileJSON, STAC, OGC API Features."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel


class TileJsonOut(BaseModel):
    """TileJSON 3.0."""

    tilejson: Literal["3.0.0"]
    name: str
    scheme: Literal["xyz"]
    tiles: list[str]
    minzoom: int
    maxzoom: int
    bounds: list[float]


class LinkOut(BaseModel):
    """A link of an OGC API."""

    href: str
    rel: str
    type: str = "application/json"


class LandingOut(BaseModel):
    """The landing page."""

    title: str
    description: str
    links: list[LinkOut]


class ConformanceOut(BaseModel):
    """Which parts of the standard are there."""

    conformsTo: list[str]  # noqa: N815, the standard's name


class CollectionOut(BaseModel):
    """A collection of features."""

    id: str
    title: str
    itemType: Literal["feature"]  # noqa: N815
    crs: list[str]
    extent: dict[str, Any]
    links: list[LinkOut]


class CollectionsOut(BaseModel):
    """All collections: there is one."""

    collections: list[CollectionOut]
    links: list[LinkOut]


class FeatureOut(BaseModel):
    """A polygon in longitude and latitude."""

    type: Literal["Feature"]
    id: int
    geometry: dict[str, Any]
    properties: dict[str, Any]


class ItemsOut(BaseModel):
    """A page of polygons."""

    type: Literal["FeatureCollection"]
    features: list[FeatureOut]
    links: list[LinkOut]
    numberMatched: int  # noqa: N815
    numberReturned: int  # noqa: N815
    timeStamp: str  # noqa: N815


class StacOut(BaseModel):
    """A STAC 1.1 item."""

    type: Literal["Feature"]
    stac_version: str
    stac_extensions: list[str]
    id: str
    geometry: dict[str, Any]
    bbox: list[float]
    properties: dict[str, Any]
    links: list[dict[str, Any]]
    assets: dict[str, dict[str, Any]]
