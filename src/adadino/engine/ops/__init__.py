"""The engine's operations that are not matrix products, each in plain PyTorch.

On a GPU with Triton each of them is one kernel (`adadino.engine.kernels`), tested against the plain
one; everywhere else the plain one runs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from importlib import import_module
from importlib.util import find_spec
from typing import ParamSpec, TypeVar, cast

from torch import Tensor

P = ParamSpec("P")
R = TypeVar("R")


@cache
def has_triton() -> bool:
    """Whether Triton is installed."""
    return find_spec("triton") is not None


def on_gpu(x: Tensor) -> bool:
    """Whether the Triton kernel should run instead of the plain operation."""
    return x.is_cuda and has_triton()


def kernel_in(module: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let the function of the same name in `kernels/MODULE.py` run on a GPU.

    The kernel takes the same arguments.
    """

    def choosing(plain: Callable[P, R]) -> Callable[P, R]:
        @wraps(plain)
        def chosen(*args: P.args, **kwargs: P.kwargs) -> R:
            first = args[0]
            if not on_gpu(first if isinstance(first, Tensor) else cast(tuple[Tensor], first)[0]):
                return plain(*args, **kwargs)
            kernels = import_module(f"adadino.engine.kernels.{module}")
            return cast(R, getattr(kernels, plain.__name__)(*args, **kwargs))

        return chosen

    return choosing
