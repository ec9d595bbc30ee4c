"""A result as map programs know it: XYZ with TileJSON, WMTS, a STAC item. `features` has polygons.

Every address holds the job's id, which cannot be guessed, and everything that a program needs, so
that one address pasted into QGIS is enough. Where the server wants a token, the program sends it as
`Authorization: Bearer TOKEN`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from fastapi import APIRouter, Request, Response

from adadino.geo.write.stac import COG, make_item
from adadino.web.http.problems import RefusedError, documented
from adadino.web.http.results import GEOJSON, GPKG, PNG, Place, Zoom, as_file
from adadino.web.http.standards import StacOut, TileJsonOut
from adadino.web.jobs.records import Job
from adadino.web.service import Service
from adadino.web.view.display import Display
from adadino.web.view.tiles import Layer
from adadino.web.view.webtiles import degrees_extent, placed, tile_range, zooms

LAYERS: dict[Layer, str] = {
    "before": "Before", "after": "After", "probability": "Probability of change",
}  # fmt: skip


def service_routes(service: Service) -> APIRouter:
    """Routes of standard services, of one job each."""
    router = APIRouter(prefix="/api/jobs/{job_id}", tags=["services"])

    @router.get("/xyz/{layer}/{z}/{x}/{y}.png", **as_file(PNG), summary="A tile in Web Mercator")
    def get_web_tile(job_id: str, layer: Layer, z: Zoom, x: Place, y: Place) -> Response:
        """256 x 256 pixels; level 0 is the world, y runs down."""
        on_earth(service, job_id)
        drawn = service.tile(job_id, layer, z, x, y, web=True)
        kept = {"cache-control": "private, max-age=86400, immutable"}
        return Response(drawn, media_type=PNG, headers=kept)

    @router.get("/tilejson/{layer}.json", responses=documented(404, 409, 422))
    def get_tilejson(request: Request, job_id: str, layer: Layer) -> TileJsonOut:
        """TileJSON 3.0 of a layer."""
        job, display = on_earth(service, job_id)
        first, last = zooms(display)
        return TileJsonOut(
            tilejson="3.0.0", name=f"{job.name}: {LAYERS[layer]}", scheme="xyz",
            tiles=[f"{base(request, job_id)}/xyz/{layer}/{{z}}/{{x}}/{{y}}.png"],
            minzoom=first, maxzoom=last, bounds=list(degrees_extent(display)),
        )  # fmt: skip

    @router.get(
        "/wmts",
        response_class=Response,
        responses={200: {"content": {"application/xml": {}}}, **documented(404, 409, 422)},
    )
    def get_wmts_capabilities(request: Request, job_id: str) -> Response:
        """WMTS 1.0.0 capabilities; tiles come by their RESTful addresses."""
        job, display = on_earth(service, job_id)
        text = capabilities(job, display, base(request, job_id))
        return Response(text, media_type="application/xml")

    @router.get("/stac.json", responses=documented(404, 409, 422))
    def get_stac_item(request: Request, job_id: str) -> StacOut:
        """A STAC 1.1 item with the job's files; its time is when the job was asked for."""
        job, display = on_earth(service, job_id)
        return StacOut(**stac_item(job, display, base(request, job_id)))

    return router


def on_earth(service: Service, job_id: str) -> tuple[Job, Display]:
    """A finished job that has a place on Earth.

    Raises:
        RefusedError: It is not finished, or has none.
    """
    job, _, display = service.finished(job_id)
    if not placed(display):
        raise RefusedError(422, "the images have no place on Earth; georeference them.")
    return job, display


def base(request: Request, job_id: str) -> str:
    """The address of a job, as the client reached it."""
    scheme = "https" if request.state.identity.secure else "http"
    return f"{scheme}://{request.headers['host']}/api/jobs/{job_id}"


def rfc3339(time: datetime) -> str:
    """A time as STAC and OGC write it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def stac_item(job: Job, display: Display, at: str) -> dict[str, Any]:
    """The item of a job; its assets are addresses of the server."""
    asset = {
        "probability": ("probability.tif", COG), "mask": ("mask.tif", COG),
        "polygons": ("result.gpkg", GPKG), "geojson": ("result.geojson", GEOJSON),
        "overview": ("overview.png", PNG),
    }  # fmt: skip
    properties = {
        "title": job.name,
        "datetime": rfc3339(datetime.fromtimestamp(job.created, UTC)),
        "adadino:datetime_source": "when the job was asked for",
        "adadino:model": job.model,
        "adadino:change_fraction": (job.result or {}).get("change_fraction"),
    }
    assets = {
        name: {
            "href": f"{at}/{file}", "type": kind, "title": name.capitalize(),
            "roles": ["overview" if name == "overview" else "data"],
        }
        for name, (file, kind) in asset.items()
    }  # fmt: skip
    links = [{"rel": "self", "href": f"{at}/stac.json", "type": GEOJSON}]
    return make_item(job.id, display.grid, assets, properties=properties) | {"links": links}


def capabilities(job: Job, display: Display, at: str) -> str:
    """WMTS capabilities of the job's layers, on the tile matrix set of Web Mercator."""
    west, south, east, north = degrees_extent(display)
    first, last = zooms(display)
    limits = "".join(
        f"<TileMatrixLimits><TileMatrix>{z}</TileMatrix><MinTileRow>{rows[0]}</MinTileRow>"
        f"<MaxTileRow>{rows[1]}</MaxTileRow><MinTileCol>{columns[0]}</MinTileCol>"
        f"<MaxTileCol>{columns[1]}</MaxTileCol></TileMatrixLimits>"
        for z in range(first, last + 1)
        for *columns, low, high in [tile_range(display, z)]
        for rows in [(low, high)]
    )
    layers = "".join(
        f"<Layer><ows:Title>{escape(f'{job.name}: {title}')}</ows:Title>"
        f"<ows:WGS84BoundingBox><ows:LowerCorner>{west:.9f} {south:.9f}</ows:LowerCorner>"
        f"<ows:UpperCorner>{east:.9f} {north:.9f}</ows:UpperCorner></ows:WGS84BoundingBox>"
        f"<ows:Identifier>{name}</ows:Identifier>"
        '<Style isDefault="true"><ows:Identifier>default</ows:Identifier></Style>'
        "<Format>image/png</Format><TileMatrixSetLink><TileMatrixSet>WebMercatorQuad"
        f"</TileMatrixSet><TileMatrixSetLimits>{limits}</TileMatrixSetLimits></TileMatrixSetLink>"
        f'<ResourceURL format="image/png" resourceType="tile" template='
        f"{quoteattr(f'{at}/xyz/{name}/{{TileMatrix}}/{{TileCol}}/{{TileRow}}.png')}/></Layer>"
        for name, title in LAYERS.items()
    )
    matrices = "".join(
        f"<TileMatrix><ows:Identifier>{z}</ows:Identifier>"
        f"<ScaleDenominator>{559082264.0287178 / 2**z:.10f}</ScaleDenominator>"
        "<TopLeftCorner>-20037508.342789244 20037508.342789244</TopLeftCorner>"
        f"<TileWidth>256</TileWidth><TileHeight>256</TileHeight><MatrixWidth>{2**z}</MatrixWidth>"
        f"<MatrixHeight>{2**z}</MatrixHeight></TileMatrix>"
        for z in range(last + 1)
    )
    return (
        '<?xml version="1.0" encoding="UTF-8"?>'
        '<Capabilities xmlns="http://www.opengis.net/wmts/1.0" version="1.0.0"'
        ' xmlns:ows="http://www.opengis.net/ows/1.1" xmlns:xlink="http://www.w3.org/1999/xlink">'
        f"<ows:ServiceIdentification><ows:Title>{escape(job.name)}</ows:Title>"
        "<ows:ServiceType>OGC WMTS</ows:ServiceType>"
        "<ows:ServiceTypeVersion>1.0.0</ows:ServiceTypeVersion></ows:ServiceIdentification>"
        f"<Contents>{layers}<TileMatrixSet><ows:Identifier>WebMercatorQuad</ows:Identifier>"
        "<ows:SupportedCRS>urn:ogc:def:crs:EPSG::3857</ows:SupportedCRS>"
        "<WellKnownScaleSet>urn:ogc:def:wkss:OGC:1.0:GoogleMapsCompatible</WellKnownScaleSet>"
        f"{matrices}</TileMatrixSet></Contents>"
        f"<ServiceMetadataURL xlink:href={quoteattr(f'{at}/wmts')}/></Capabilities>"
    )
