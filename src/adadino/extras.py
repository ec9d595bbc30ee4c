"""The package's extras: what each brings, which one a missing module is in, what is too old.

Read from the installed package's own metadata with the standard library alone, because whoever asks
has something missing.
"""

from __future__ import annotations

import re
from importlib import metadata

EXTRAS = {
    "geo": "GeoTIFFs: adadino predict, demo, masks, polygons, QGIS styles",
    "train": "adadino train, evaluate's curves, reproduce",
    "web": "adadino serve, the page in a browser",
    "export": "adadino export to ONNX, and predict with such a file",
    "hub": "models and DINOv3 weights by Hugging Face id instead of by file",
    "area": "adadino predict-area in buckets, --web-map",
    "ray": "adadino predict-area on many workers; --workers 0 does without",
    "pretrain": "adadino pretrain, a small backbone without DINOv3's weights",
}
"""What each extra adds for a user; those of developers are left out."""


def extra_with(module: str) -> str | None:
    """The extra that brings a module that is missing; None if it is in no extra."""
    known = {"skimage": "scikit-image", "affine": "rasterio", "fpdf": "fpdf2"}
    known["multipart"] = "python-multipart"
    top = module.partition(".")[0]
    package = known.get(top, top).replace("_", "-")
    try:
        wanted = requirements("adadino")
    except metadata.PackageNotFoundError:
        return None
    return next(
        (extra for extra in EXTRAS if package in [name for name, _ in wanted.get(extra, ())]), None
    )


def requirements(package: str) -> dict[str, list[tuple[str, tuple[int, ...]]]]:
    """The packages of each extra, with the oldest release that will do.

    Extras that name another extra of the same package have its packages too.
    """
    found: dict[str, list[tuple[str, tuple[int, ...]]]] = {}
    nested: list[tuple[str, list[str]]] = []
    for line in metadata.requires(package) or ():
        marker = re.search(r"extra\s*==\s*['\"]([\w-]+)['\"]", line)
        named = re.match(r"\s*([\w.-]+)\s*(?:\[([^\]]*)\])?", line)
        if marker is None or named is None:
            continue
        extra = marker[1]
        found.setdefault(extra, [])
        if named[1].lower() == package:
            nested.append((extra, [part.strip() for part in (named[2] or "").split(",")]))
            continue
        floor = re.search(r">=\s*([\d.]+)", line.partition(";")[0])
        found[extra].append((named[1], version_numbers(floor[1]) if floor else ()))
    for extra, others in nested:
        for other in others:
            found[extra].extend(found.get(other, ()))
    return found


def missing(name: str, floor: tuple[int, ...]) -> str | None:
    """What is wrong with a package: it is not there, or too old."""
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return name
    if version_numbers(version) < floor:
        return f"{name} {version} is older than {'.'.join(map(str, floor))}"
    return None


def version_numbers(version: str) -> tuple[int, ...]:
    """2.13.0+cpu -> (2, 13, 0): enough to compare with a floor."""
    numbers = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in numbers[0].split(".")) if numbers else ()
