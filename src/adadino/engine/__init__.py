"""The fast path: folded weights, fused kernels, compact FFN, CUDA graphs, bf16 and fp8."""

from adadino.engine.choice import Choice, fastest
from adadino.engine.model import Engine, Precision, optimize

__all__ = ["Choice", "Engine", "Precision", "fastest", "optimize"]
