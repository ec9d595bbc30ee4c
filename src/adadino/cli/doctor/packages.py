"""What is installed: torch, GDAL, the extras, the bundled model, DINOv3's weights."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from adadino import bundled
from adadino.cli.doctor import Check
from adadino.extras import EXTRAS, missing, requirements, version_numbers


def check_torch() -> Check:
    """PyTorch, which every model runs on."""
    try:
        import torch

        torch.zeros(1).add_(1)
    except Exception as error:  # a broken install fails in ways of its own: OSError, RuntimeError
        return Check(
            "torch", "problem", f"cannot be used: {_first_line(error)}",
            "no model can be loaded; only an exported .onnx file runs without torch.",
            "pip install --force-reinstall 'torch>=2.11'",
        )  # fmt: skip
    found = f"{torch.__version__}, {torch.get_num_threads()} threads"
    if version_numbers(torch.__version__) < (2, 11):
        return Check(
            "torch", "note", found, "older than what adadino was tested with.",
            "pip install 'torch>=2.11'",
        )  # fmt: skip
    return Check("torch", "ok", found, "models load and run.")


def check_gdal() -> Check:
    """Whether rasters can be read and placed on the ground."""
    try:
        import rasterio
        from rasterio.crs import CRS
        from rasterio.drivers import raster_driver_extensions
    except Exception as error:  # an ImportError, or the OSError of a library that is not there
        found = "rasterio is not installed"
        if not isinstance(error, ModuleNotFoundError):
            found = f"rasterio cannot be used: {_first_line(error)}"
        return Check(
            "GDAL", "note", found,
            "no GeoTIFF can be read; adadino.predict takes arrays, PNG and JPEG.",
            "pip install 'adadino[geo]'",
        )  # fmt: skip
    found = f"{rasterio.__gdal_version__} in rasterio {rasterio.__version__}"
    try:
        CRS.from_epsg(32633).to_wkt()
    except Exception as error:  # rasterio's CRSError
        said = [name for name in ("PROJ_LIB", "PROJ_DATA", "GDAL_DATA") if os.environ.get(name)]
        what = f"unset {' '.join(said)}" if said else "pip install --force-reinstall rasterio"
        return Check(
            "GDAL", "note", f"{found}; {_first_line(error)}",
            "its table of coordinate systems is not found, so GeoTIFFs have no place; another "
            "program's GDAL or PROJ is in the way.",
            what,
        )  # fmt: skip
    formats = sorted(raster_driver_extensions())
    return Check(
        "GDAL", "ok", found, f"GeoTIFF and {len(formats)} other file endings; EPSG codes are known."
    )


def check_extras() -> Iterator[Check]:
    """Each extra: installed, or what it would add and how to get it."""
    try:
        wanted = requirements("adadino")
    except metadata.PackageNotFoundError:
        yield Check(
            "extras", "note", "adadino runs from a folder, it is not installed",
            "which packages belong together is not known here.", "pip install -e '.[geo,train]'",
        )  # fmt: skip
        return
    for extra, meaning in EXTRAS.items():
        absent = [problem for item in wanted.get(extra, ()) if (problem := missing(*item))]
        if absent:
            yield Check(
                f"[{extra}]", "note", f"missing: {', '.join(absent)}", meaning,
                f"pip install 'adadino[{extra}]'",
            )  # fmt: skip
        else:
            yield Check(f"[{extra}]", "ok", "installed", meaning)


def check_bundled(*, run: bool = True) -> Check:
    """The model that comes with the package: there, whole, and working."""
    weights = Path(bundled.__file__).parent / "tiny" / "model.safetensors"
    repair = "pip install --force-reinstall adadino"
    try:
        digest = hashlib.sha256(weights.read_bytes()).hexdigest()
    except OSError as error:
        return Check(
            "bundled model", "problem", f"{weights} cannot be read: {error.strerror}",
            "adadino demo and predict need --model.", repair,
        )  # fmt: skip
    found = f"tiny, sha256 {digest}"
    if run:
        problem = _trial()
        if problem is not None:
            return Check(
                "bundled model", "problem", f"{found}; {problem}",
                "adadino demo and predict need another --model.", repair,
            )  # fmt: skip
        found += ", and it ran"
    return Check(
        "bundled model", "ok", found,
        "demo, predict and serve work without a download; adadino info tiny says what for.",
    )  # fmt: skip


def _trial() -> str | None:
    """Run the bundled model on a small pair; what went wrong, if anything did."""
    try:
        import numpy as np

        from adadino.checkpoint import load

        dark = np.zeros((32, 32, 3), np.uint8)
        answer = load("tiny").predict(dark, dark)
        if answer.shape != (32, 32) or not bool(np.isfinite(answer).all()):
            return "it answers with something that is no map of probabilities"
    except Exception as error:  # whatever it is, the user should read it here
        return f"it does not run: {_first_line(error)}"
    return None


def check_dinov3() -> Check:
    """DINOv3 weights where they usually lie: the hub's and torch's caches, and this folder."""
    places = weight_places()
    found = [str(path) for place, pattern in places for path in sorted(place.glob(pattern))]
    if found:
        return Check(
            "DINOv3 weights", "ok", ", ".join(found),
            "nothing takes them by itself: give one to train as --model.backbone.weights, to "
            "predict as --backbone.",
        )  # fmt: skip
    return Check(
        "DINOv3 weights", "ok", f"none in {', '.join(str(place) for place, _ in places)}",
        "needed for the paper's models only; the bundled model has its own backbone, and "
        "adadino pretrain makes one.",
    )  # fmt: skip


def weight_places() -> list[tuple[Path, str]]:
    """Folders where DINOv3 weights lie, each with the names they have there."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    home = Path(os.environ.get("HF_HOME") or cache / "huggingface")
    hub = Path(os.environ.get("HF_HUB_CACHE") or home / "hub")
    torch = Path(os.environ.get("TORCH_HOME") or cache / "torch")
    return [
        (hub, "models--*dinov3*"),
        (torch / "hub" / "checkpoints", "dinov3*.pth"),
        (Path.cwd(), "*dinov3*.pth"),
    ]


def _first_line(error: BaseException) -> str:
    """The first line of an error, without its full stop."""
    text = str(error).strip()
    return text.splitlines()[0][:160].rstrip(".") if text else type(error).__name__
