"""The engine's operations that are not matrix products, each in plain PyTorch.

On a GPU with Triton each of them is one kernel (`adadino.engine.kernels`), tested against the plain
one; everywhere else the plain one runs.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

from torch import Tensor


@cache
def has_triton() -> bool:
    """Whether Triton is installed."""
    return find_spec("triton") is not None


def on_gpu(x: Tensor) -> bool:
    """Whether the Triton kernel should run instead of the plain operation."""
    return x.is_cuda and has_triton()
