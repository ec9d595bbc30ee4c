"""Find what changed between two co-registered images of one place.

The public names are imported when first used, so `import adadino` costs nothing. `predict` is here;
`_HOMES` says where the others are.
"""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0.dev0"
__all__ = [
    "AdaDINO",
    "AdaDINOError",
    "Client",
    "Config",
    "from_pretrained",
    "load",
    "optimize",
    "predict",
    "predict_scene",
    "predict_series",
    "push_to_hub",
    "save_pretrained",
]

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from adadino.checkpoint import load
    from adadino.client import Client
    from adadino.config import Config
    from adadino.engine import optimize
    from adadino.errors import AdaDINOError
    from adadino.model.adadino import AdaDINO
    from adadino.model.detector import Detector
    from adadino.model.inputs import ImageLike
    from adadino.pretrained import from_pretrained, push_to_hub, save_pretrained
    from adadino.scene import predict_scene
    from adadino.series import predict_series

_HOMES = {
    "AdaDINO": "adadino.model.adadino",
    "AdaDINOError": "adadino.errors",
    "Client": "adadino.client",
    "Config": "adadino.config",
    "from_pretrained": "adadino.pretrained",
    "load": "adadino.checkpoint",
    "optimize": "adadino.engine",
    "predict_scene": "adadino.scene",
    "predict_series": "adadino.series",
    "push_to_hub": "adadino.pretrained",
    "save_pretrained": "adadino.pretrained",
}


def predict(
    before: ImageLike, after: ImageLike, *, model: str | PathLike[str] | Detector = "tiny"
) -> NDArray[np.float32]:
    """Probability of change of every pixel of one pair.

    Args:
        before: The first date: array, tensor, PIL image or path.
        after: The second date, of the same size.
        model: A model, or what `adadino.load` takes.

    Returns:
        An array (H, W) in [0, 1]; see `Detector.predict`.
    """
    detector: Detector = __getattr__("load")(model) if isinstance(model, str | PathLike) else model
    return detector.predict(before, after)


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
