"""What the machine has: Python, processors, memory, a GPU, a sandbox, folders to write to."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from adadino.cli.doctor import Check

LEAST_PYTHON = (3, 11)
GIB = 2**30


def check_python() -> Check:
    """The interpreter."""
    found = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    if sys.version_info < LEAST_PYTHON:
        return Check(
            "Python", "problem", found, "adadino is written for 3.11 or newer.",
            "make clean setup PYTHON=/path/to/python3.11",
        )  # fmt: skip
    return Check("Python", "ok", found, f"new enough; this one is {sys.executable}.")


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
