"""The model that comes with the package."""

from __future__ import annotations

import os
from pathlib import Path


def bundled(name: str) -> Path | None:
    """The folder of a model that comes with the package; None if there is none of this name."""
    folder = Path(__file__).parent / name
    whole = os.path.isfile(folder / "model.safetensors")  # noqa: PTH113, names may be too long for pathlib
    return folder if name.isidentifier() and whole else None
