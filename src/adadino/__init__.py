"""Find what changed between two co-registered images of one place.

The public names are imported when first used, so `import adadino` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["AdaDINO", "AdaDINOError", "Config", "load", "predict", "predict_scene"]

if TYPE_CHECKING:
    from adadino.config import Config
    from adadino.errors import AdaDINOError
    from adadino.model.adadino import AdaDINO
    from adadino.model.checkpoint import load, predict
    from adadino.scene import predict_scene

_HOMES = {
    "AdaDINO": "adadino.model.adadino",
    "AdaDINOError": "adadino.errors",
    "Config": "adadino.config",
    "load": "adadino.model.checkpoint",
    "predict": "adadino.model.checkpoint",
    "predict_scene": "adadino.scene",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'adadino' has no attribute {name!r}")
    from importlib import import_module

    try:
        return getattr(import_module(_HOMES[name]), name)
    except ModuleNotFoundError as error:
        # By name: whoever imports the package must not import the doctor.
        extra = import_module("adadino.extras").extra_with(error.name or "")
        if extra is None:
            raise
        raise ImportError(
            f"adadino.{name} needs {error.name}, which is not installed: "
            f"pip install 'adadino[{extra}]'"
        ) from error


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
