"""What this machine has, and what that means for whoever uses adadino on it.

- Every check answers, whatever is missing or broken. So nothing beyond the standard library is
  imported outside the check that is about it.
- A missing extra is no problem. Only what stops every command is one: Python, torch, the bundled
  model.
- Nothing is fetched, nothing stays on disk.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from adadino.extras import EXTRAS, missing, requirements, version_numbers

State = Literal["ok", "note", "problem"]
LEAST_PYTHON = (3, 11)
GIB = 2**30


@dataclass(frozen=True)
class Check:
    """One line of the report."""

    name: str
    state: State
    found: str
    meaning: str
    """What it means for the user."""
    remedy: str = ""
    """What to type or change; empty if nothing needs to be done."""


def examine(*, run: bool = True) -> list[Check]:
    """Look at everything.

    Args:
        run: Also run the bundled model on a small pair.
    """
    torch = check_torch()
    return [
        check_python(),
        torch,
        *([] if torch.state == "problem" else [check_gpu()]),
        check_processors(),
        check_memory(),
        check_gdal(),
        *check_extras(),
        check_bundled(run=run and torch.state != "problem"),
        check_dinov3(),
        check_server(),
        *check_folders(compiled=torch.state != "problem"),
    ]


def usable(checks: list[Check]) -> bool:
    """Whether adadino can do anything here."""
    return all(check.state != "problem" for check in checks)


def check_python() -> Check:
    """The interpreter."""
    found = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    if sys.version_info < LEAST_PYTHON:
        return Check(
            "Python", "problem", found, "adadino is written for 3.11 or newer.",
            "make clean setup PYTHON=/path/to/python3.11",
        )  # fmt: skip
    return Check("Python", "ok", found, f"new enough; this one is {sys.executable}.")


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


def check_gpu() -> Check:
    """What `--device auto` will choose."""
    import torch

    if torch.cuda.is_available():
        card = torch.cuda.get_device_properties(0)
        more = (
            f", and {torch.cuda.device_count() - 1} more" if torch.cuda.device_count() > 1 else ""
        )
        found = (
            f"{card.name}, {card.total_memory / GIB:.0f} GiB, compute capability "
            f"{card.major}.{card.minor}{more}"
        )
        fp8 = (
            " fp8 works too." if (card.major, card.minor) >= (8, 9) else " fp8 needs 8.9 or newer."
        )
        return Check("GPU", "ok", found, f"chosen by --device auto; predict uses bf16 on it.{fp8}")
    if torch.backends.mps.is_available():
        return Check("GPU", "ok", "Apple (MPS)", "chosen by --device auto.")
    slow = "everything works on the processor: fine for the bundled model, slow for ViT-L."
    if shutil.which("nvidia-smi") is not None:
        built = (
            "for the CPU only" if torch.version.cuda is None else f"for CUDA {torch.version.cuda}"
        )
        return Check(
            "GPU", "note", f"an NVIDIA driver is here, but torch is built {built}", slow,
            "reinstall torch as https://pytorch.org/get-started/locally says for your driver",
        )  # fmt: skip
    return Check("GPU", "ok", "none", slow)


def check_processors() -> Check:
    """Processor cores this process may use."""
    count = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    return Check(
        "processors", "ok", str(count), "predict reads with as many threads as this, at most 8."
    )


def check_memory() -> Check:
    """Memory, or the share of it that a container has."""
    total = _memory()
    meaning = "scenes are streamed: 20,000 x 20,000 pixels of 16 bits took 1.4 GB beside the model."
    if total is None:
        return Check("memory", "note", "unknown on this system", meaning)
    found = f"{total / GIB:.1f} GiB"
    if total < 3 * GIB:
        return Check(
            "memory", "note", found, f"little; {meaning}", "use --batch 1, and close other programs"
        )
    return Check("memory", "ok", found, meaning)


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
    weights = Path(__file__).parents[1] / "bundled" / "tiny" / "model.safetensors"
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


def check_server() -> Check:
    """What keeps `adadino serve` to an upload: what the kernel has of it."""
    from adadino.web.jobs.sandbox import protections

    held = protections()
    found = ", ".join(name if there else f"no {name}" for name, there, _ in held)
    if all(there for _, there, _ in held):
        meaning = "; ".join(meaning for _, _, meaning in held)
        return Check("server", "ok", found, f"{meaning}.")
    missing = "; ".join(f"without {name} it does not hold that {meaning}"
                        for name, there, meaning in held if not there)  # fmt: skip
    return Check(
        "server", "note", found, f"{missing}.",
        "for uploads of strangers, serve on Linux 5.13 or newer, or in a container (Dockerfile)",
    )  # fmt: skip


def check_folders(*, compiled: bool = True) -> Iterator[Check]:
    """Folders adadino writes to without being told.

    Args:
        compiled: Also the cache of compiled kernels, which only torch fills.
    """
    if compiled:
        from adadino.engine.cache import cache_folder

        yield _writable(
            "cache folder", cache_folder(), "ADADINO_CACHE",
            "compiled GPU kernels are kept there between runs.",
        )  # fmt: skip
    yield _writable(
        "temporary folder", Path(tempfile.gettempdir()), "TMPDIR",
        "for what is needed during a run; rows of a scene are kept beside its output instead.",
    )  # fmt: skip


def _writable(name: str, folder: Path, variable: str, meaning: str) -> Check:
    """Try it, in the nearest part of its path that exists, with a file that is gone at once."""
    existing = next((path for path in (folder, *folder.parents) if path.exists()), Path.cwd())
    try:
        with tempfile.TemporaryFile(dir=existing) as file:
            file.write(b"adadino")
            file.flush()
        free = shutil.disk_usage(existing).free
    except OSError as error:
        return Check(
            name, "note", f"{folder} cannot be written: {error.strerror}", meaning,
            f"set {variable} to a folder that can",
        )  # fmt: skip
    found = f"{folder}, {free / 1e9:.1f} GB free"
    if free < 1e9:
        return Check(name, "note", found, meaning, f"free some space, or set {variable}")
    return Check(name, "ok", found, meaning)


def _memory() -> int | None:
    """Bytes this process may use: the machine's, or less if a container says so."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf
        return None
    for name in ("memory.max", "memory/memory.limit_in_bytes"):  # cgroups, second and first kind
        try:
            limit = (Path("/sys/fs/cgroup") / name).read_text(encoding="ascii").strip()
        except OSError:
            continue
        if limit.isdecimal():
            total = min(total, int(limit))
    return total


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0][:160].rstrip(".") if text else type(error).__name__
