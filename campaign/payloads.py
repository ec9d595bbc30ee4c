"""What a polyglot carries: words that make one of GDAL's drivers open another file or address.

Each payload is a template around a reference; a reference names a canary file or a socket that
listens on loopback, in one of the many ways that GDAL understands.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

SIZES = ((40, 40), (64, 48), (320, 320), (20_000, 20_000), (200_000, 200_000))
"""What payloads say of their size; the last two pass no limit."""


@dataclass(frozen=True)
class Lures:
    """What must not be touched."""

    raw: Path
    image: Path
    zipped: Path
    tarred: Path
    port: int

    def reference(self, rng: random.Random) -> str:
        """One of the names by which GDAL would reach a canary or the socket."""
        return rng.choice(REFERENCES)(self)


def _near(lures: Lures) -> str:
    """A path that leads out of the folder in which polyglots lie."""
    return f"../{lures.image.parent.name}/{lures.image.name}"


REFERENCES: tuple[Callable[[Lures], str], ...] = (
    lambda at: str(at.raw),
    lambda at: str(at.image),
    lambda at: f"file://{at.image}",
    _near,
    lambda at: f"./{_near(at)}",
    lambda at: "/proc/self/environ",
    lambda at: "/proc/self/fd/../environ",
    lambda at: "/etc/passwd",
    lambda at: f"GTIFF_DIR:1:{at.image}",
    lambda at: f"GTIFF_RAW:{at.image}",
    lambda at: f'JPEG:"{at.image}":FLIR_RAW_THERMAL_IMAGE',
    lambda at: f"JPEG_SUBFILE:0,100,{at.raw}",
    lambda at: f"vrt://{at.image}",
    lambda at: f"DERIVED_SUBDATASET:LOGAMPLITUDE:{at.image}",
    lambda at: f"/vsizip/{at.zipped}/canary.tif",
    lambda at: f"/vsizip/{{{at.zipped}}}/canary.tif",
    lambda at: f"/vsitar/{at.tarred}/canary.tif",
    lambda at: f"/vsisubfile/0_1600,{at.raw}",
    lambda at: f"/vsigzip/{at.raw}",
    lambda at: f"/vsicrypt/key=AAAA,file={at.raw}",
    lambda at: f"/vsisparse/{at.raw}",
    lambda at: f"/vsicached?file={at.image}",
    lambda at: f"/vsicurl/http://127.0.0.1:{at.port}/canary.tif",
    lambda at: f"/vsicurl?max_retry=0&url=http%3A%2F%2F127.0.0.1%3A{at.port}%2Fa.tif",
    lambda at: f"/vsicurl_streaming/http://127.0.0.1:{at.port}/canary.tif",
    lambda at: f"/vsizip/vsicurl/http://127.0.0.1:{at.port}/canary.zip/a.tif",
    lambda at: f"/vsiwebhdfs/http://127.0.0.1:{at.port}/webhdfs/v1/a.tif",
    lambda at: f"/vsis3/127.0.0.1:{at.port}/canary.tif",
    lambda at: f"http://127.0.0.1:{at.port}/canary.tif",
    lambda at: f"ftp://127.0.0.1:{at.port}/canary.tif",
    lambda at: f"udp://127.0.0.1:{at.port}/canary.tif",
)

_BAND = '<VRTRasterBand dataType="Byte" band="{n}"{more}>{inside}</VRTRasterBand>'
_SOURCE = (
    '<{kind}><SourceFilename relativeToVRT="0">{at}</SourceFilename><SourceBand>1</SourceBand>'
    '<SrcRect xOff="0" yOff="0" xSize="40" ySize="40"/>'
    '<DstRect xOff="0" yOff="0" xSize="{w}" ySize="{h}"/></{kind}>'
)


def _dataset(w: int, h: int, inside: str, more: str = "") -> str:
    return f'<VRTDataset rasterXSize="{w}" rasterYSize="{h}"{more}>{inside}</VRTDataset>'


def _raw(at: str, w: int, h: int) -> str:
    inside = f'<SourceFilename relativetoVRT="0">{at}</SourceFilename><ImageOffset>0</ImageOffset>'
    inside += f"<PixelOffset>1</PixelOffset><LineOffset>{min(w, 40)}</LineOffset>"
    more = ' subClass="VRTRawRasterBand"'
    return _dataset(w, h, "".join(_BAND.format(n=n, more=more, inside=inside) for n in (1, 2, 3)))


def _simple(at: str, w: int, h: int, kind: str = "SimpleSource", more: str = "") -> str:
    inside = _SOURCE.format(kind=kind, at=at, w=w, h=h)
    return _dataset(w, h, "".join(_BAND.format(n=n, more=more, inside=inside) for n in (1, 2, 3)))


def _complex(at: str, w: int, h: int) -> str:
    return _simple(at, w, h, "ComplexSource")


def _derived(at: str, w: int, h: int) -> str:
    code = f'import socket;socket.create_connection(("127.0.0.1",1));open({at!r})'
    inside = (
        "<PixelFunctionType>lure</PixelFunctionType><PixelFunctionLanguage>Python"
        f"</PixelFunctionLanguage><PixelFunctionCode><![CDATA[{code}]]></PixelFunctionCode>"
    ) + _SOURCE.format(kind="SimpleSource", at=at, w=w, h=h)
    more = ' subClass="VRTDerivedRasterBand"'
    return _dataset(w, h, _BAND.format(n=1, more=more, inside=inside))


def _mask(at: str, w: int, h: int) -> str:
    source = _SOURCE.format(kind="SimpleSource", at=at, w=w, h=h)
    band = _BAND.format(n=1, more="", inside=source)
    overview = f"<Overview><SourceFilename>{at}</SourceFilename></Overview>"
    more = _BAND.format(n=1, more="", inside=source + overview)
    return _dataset(w, h, f"{more}<MaskBand>{band}</MaskBand><OverviewList>2 4</OverviewList>")


def _warped(at: str, w: int, h: int) -> str:
    band = _BAND.format(n=1, more=' subClass="VRTWarpedRasterBand"', inside="")
    step = "<DstGeoTransform>0,1,0,0,0,1</DstGeoTransform>"
    step += "<DstInvGeoTransform>0,1,0,0,0,1</DstInvGeoTransform>"
    step = step.replace("Dst", "Src") + step
    options = (
        "<GDALWarpOptions><WarpMemoryLimit>1e6</WarpMemoryLimit><ResampleAlg>Near</ResampleAlg>"
        f'<WorkingDataType>Byte</WorkingDataType><SourceDataset relativeToVRT="0">{at}'
        "</SourceDataset><BandList><BandMapping src='1' dst='1'/></BandList><Transformer>"
        f"<GenImgProjTransformer>{step}</GenImgProjTransformer></Transformer></GDALWarpOptions>"
    )
    size = "<BlockXSize>128</BlockXSize><BlockYSize>128</BlockYSize>"
    return _dataset(w, h, band + size + options, ' subClass="VRTWarpedDataset"')


def _pansharpened(at: str, w: int, h: int) -> str:
    source = f"<SourceFilename relativeToVRT='0'>{at}</SourceFilename><SourceBand>1</SourceBand>"
    inside = f"<PansharpeningOptions><PanchroBand>{source}</PanchroBand>"
    inside += f"<SpectralBand dstBand='1'>{source}</SpectralBand></PansharpeningOptions>"
    band = _BAND.format(n=1, more=' subClass="VRTPansharpenedRasterBand"', inside="")
    return _dataset(w, h, band + inside, ' subClass="VRTPansharpenedDataset"')


def _wms(at: str, w: int, h: int) -> str:
    return (
        f'<GDAL_WMS><Service name="TMS"><ServerUrl>{at}/${{z}}/${{x}}/${{y}}.png</ServerUrl>'
        "</Service><DataWindow><UpperLeftX>0</UpperLeftX><UpperLeftY>9</UpperLeftY><LowerRightX>9"
        f"</LowerRightX><LowerRightY>0</LowerRightY><SizeX>{w}</SizeX><SizeY>{h}</SizeY>"
        "</DataWindow><BandsCount>3</BandsCount><Cache/></GDAL_WMS>"
    )


def _wmts(at: str, w: int, h: int) -> str:
    return f"<GDAL_WMTS><GetCapabilitiesUrl>{at}</GetCapabilitiesUrl><Layer>a</Layer></GDAL_WMTS>"


def _gti(at: str, w: int, h: int) -> str:
    return (
        f"<GDALTileIndexDataset><IndexDataset>{at}</IndexDataset><IndexLayer>a</IndexLayer>"
        f"<LocationField>location</LocationField><Overview><Dataset>{at}</Dataset></Overview>"
        f"<XSize>{w}</XSize><YSize>{h}</YSize></GDALTileIndexDataset>"
    )


def _stacit(at: str, w: int, h: int) -> str:
    item = {"type": "Feature", "stac_version": "1.0.0", "properties": {"proj:epsg": 4326},
            "assets": {"a": {"href": at, "proj:shape": [h, w], "proj:transform": [1, 0, 0, 0, -1, 0]
                             }}}  # fmt: skip
    return json.dumps({"type": "FeatureCollection", "stac_version": "1.0.0", "features": [item]})


def _ogcapi(at: str, w: int, h: int) -> str:
    return json.dumps({"links": [{"rel": "item", "type": "image/tiff", "href": at}]})


def _items(domain: str, *names: str) -> Callable[[str, int, int], str]:
    """Items of GDAL's own tag of metadata."""

    def made(at: str, w: int, h: int) -> str:
        lines = (f'<Item name="{name}" domain="{domain}">{at}</Item>' for name in names)
        return f"<GDALMetadata>{''.join(lines)}</GDALMetadata>"

    return made


def _proj(option: str) -> Callable[[str, int, int], str]:
    """A coordinate system that wants a file of shifts."""

    def made(at: str, w: int, h: int) -> str:
        text = f"+proj=longlat +ellps=bessel +{option}={at} +no_defs"
        return (
            'ESRI PE String = GEOGCS["x",DATUM["x",SPHEROID["x",6377397.155,299.15],EXTENSION['
            f'"PROJ4_GRIDS","{at}"]],PRIMEM["Greenwich",0],UNIT["Degree",0.01745],'
            f'EXTENSION["PROJ4","{text}"]]|{text}|'
        )

    return made


def _bound(at: str, w: int, h: int) -> str:
    base = 'GEOGCRS["x",DATUM["x",ELLIPSOID["x",6377397,299]],CS[ellipsoidal,2],'
    base += 'AXIS["a",north],AXIS["o",east],ANGLEUNIT["degree",0.01745]]'
    return (
        f"ESRI PE String = BOUNDCRS[SOURCECRS[{base}],TARGETCRS[{base}],ABRIDGEDTRANSFORMATION["
        f'"x",METHOD["NTv2"],PARAMETERFILE["Latitude and longitude difference file","{at}"]]]|'
    )


def _beside(at: str, w: int, h: int) -> str:
    """What a file beside an image would hold."""
    return (
        f'<PAMDataset><Metadata domain="OVERVIEWS"><MDI key="OVERVIEW_FILE">{at}</MDI></Metadata>'
        f"<PAMRasterBand band='1'><Overview><SourceFilename>{at}</SourceFilename></Overview>"
        f"</PAMRasterBand></PAMDataset>\n{at}.ovr {at}.msk {at}.tfw {at}.aux.xml"
    )


def _name(at: str, w: int, h: int) -> str:
    return at


PAYLOADS: Mapping[str, Callable[[str, int, int], str]] = {
    "vrt-raw": _raw, "vrt-simple": _simple, "vrt-complex": _complex, "vrt-derived": _derived,
    "vrt-mask": _mask, "vrt-warped": _warped, "vrt-pansharpened": _pansharpened, "wms": _wms,
    "wmts": _wmts, "gti": _gti, "stacit": _stacit, "ogcapi": _ogcapi, "name": _name,
    "overview-file": _items("OVERVIEWS", "OVERVIEW_FILE"),
    "overview-base": _items("overviews", "OVERVIEW_FILE", "MASK_OVERVIEW_FILE"),
    "geolocation": _items("GEOLOCATION", "X_DATASET", "Y_DATASET"),
    "subdatasets": _items("SUBDATASETS", "SUBDATASET_1_NAME"),
    "structure": _items("IMAGE_STRUCTURE", "OVERVIEW_FILE", "SOURCE_COLOR_SPACE"),
    "xml-vrt": _items("xml:VRT", "VRT"),
    "nadgrids": _proj("nadgrids"), "geoidgrids": _proj("geoidgrids"), "boundcrs": _bound,
    "sidecar": _beside,
}  # fmt: skip


def make_payload(name: str, lures: Lures, rng: random.Random) -> bytes:
    """A payload; one in eight refers to another one instead of to a file."""
    width, height = rng.choice(SIZES)
    at = lures.reference(rng)
    if rng.random() < 0.125:
        inner = rng.choice((_raw, _simple, _wms, _warped))
        at = escape(inner(at, 40, 40), {'"': "&quot;"})
    text = PAYLOADS[name](at, width, height)
    if rng.random() < 0.2:
        text = rng.choice(("", " ", "\n", '<?xml version="1.0"?>\n', "\ufeff")) + text
    if rng.random() < 0.125:
        other = rng.choice(list(PAYLOADS))
        text += rng.choice(("", "\n", "\x00")) + PAYLOADS[other](lures.reference(rng), 64, 48)
    return text.encode()
