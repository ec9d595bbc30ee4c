"""The inference engine: AdaDINO's weights folded once, run by fused kernels in 32, 16 or 8 bits.

`optimize` makes an `Engine` of a model; `for_inference` decides whether to. `model.py` wires it:
`encoder.py` over `block.py` and `adapter.py`, then `decoder.py`. Whatever is not a matrix product
is in `ops/` as plain PyTorch, and in `kernels/` as Triton, which runs on GPUs. `rows.py` has
matrices in eight bits, `cuda.py` graphs and streams, `cache.py` the place of compiled kernels.
Every part mirrors one of `model/`, and tests/engine holds the engine equal to the model in every
variant.
"""

from adadino.engine.choice import Choice, for_inference
from adadino.engine.model import Engine, Precision, optimize

__all__ = ["Choice", "Engine", "Precision", "for_inference", "optimize"]
