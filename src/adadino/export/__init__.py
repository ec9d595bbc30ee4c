"""Write a model as one file for other programs, ONNX or `.pt2`, checked against the model.

`write.py` has `export`, step by step; `options.py` holds its settings. `portable.py` makes the
model a graph that takes any image size, `freeze.py` cuts the FFNs down to chosen chunks, `trace.py`
traces and converts, `check.py` compares, and `metadata.py` is what the file says about itself.
Names are imported when first used, so that the command line reads the settings without torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from adadino.export.options import ExportOptions
    from adadino.export.write import Exported, export

__all__ = ["ExportOptions", "Exported", "export"]

_HOMES = {"ExportOptions": "options", "Exported": "write", "export": "write"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'adadino.export' has no attribute {name!r}")
    return getattr(import_module(f"adadino.export.{_HOMES[name]}"), name)
