"""What a benchmark compares: the modes of our model, and transformers' encoder beside them.

- `paper`: the plain model, fp32, TF32 off, eager.
- `fp32`: the engine in the same arithmetic, not compiled.
- `fast`: the engine, bf16 where the device computes in it.
- `fp8`, `int8`: the engine with the frozen weights in eight bits; on a GPU, on a CPU.

A mode is timed only if its answers are the plain model's (`check`). The outside reference is
transformers' `DINOv3ViTModel` of the same shape: the encoder alone, as others run it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn

from adadino.benchmark.cost import exact_fp32, wait
from adadino.benchmark.options import Mode
from adadino.config import BackboneConfig
from adadino.engine import optimize
from adadino.errors import ConfigError
from adadino.model.adadino import AdaDINO
from adadino.model.detector import Detector

Encode = Callable[[Tensor], object]


def arithmetic(mode: Mode) -> AbstractContextManager[None]:
    """How a mode computes: `paper` and `fp32` without TF32, the engine with its users' settings.

    So what the benchmark compiles is what users later find in the cache.
    """
    return exact_fp32() if mode in ("paper", "fp32") else nullcontext()


class ModeError(ConfigError):
    """A mode that the device cannot run."""


def make(plain: AdaDINO, mode: Mode) -> Detector:
    """The model of a mode.

    Args:
        plain: The model in fp32.
        mode: Which mode.

    Raises:
        ModeError: The device cannot run it; the message says why.
    """
    device = plain.device.type
    if mode == "paper":
        return plain
    if mode == "fp8" and device != "cuda":
        raise ModeError(f"fp8 needs a GPU; on {device} it would only be emulated")
    if mode == "int8" and device != "cpu":
        raise ModeError(f"int8 is for CPUs; the device is {device}")
    # fp32 is the paper's arithmetic: nothing is compiled, as in its eager mode.
    compile = False if mode == "fp32" else None
    return optimize(plain, precision="auto" if mode == "fast" else mode, compile=compile)


def check(model: Detector, plain: AdaDINO, mode: Mode, images: list[Tensor]) -> float:
    """Compare a mode's answers with the plain model's in fp32, on fresh images, before it is timed.

    Returns:
        Seconds of the mode's first pass, compilation included.

    Raises:
        ModeError: The answers differ; the message says by how much.
    """
    device, C = images[0].device, plain.config.bscs.chunks
    fresh = [torch.rand_like(image) for image in images]
    # The chunks are given, because near a tie a policy could choose others: half of them, and not
    # the same in every block.
    blocks = range(plain.config.backbone.depth)
    chunks = torch.stack([torch.randperm(C)[: C // 2].sort().values for _ in blocks]).to(device)
    with torch.inference_mode():
        with exact_fp32():
            expected = plain(*fresh, chunks=chunks).logits
        torch.full((1 << 24,), math.nan, device=device)  # unwritten memory likely holds NaN now
        with arithmetic(mode):
            wait(device)
            began = time.perf_counter()
            got = model.unrecorded(*fresh, chunks=chunks).logits
            wait(device)
            taken = time.perf_counter() - began
    error = float((got - expected).norm() / expected.norm())
    within = 1e-3 if mode == "fp32" else 0.25
    if not error < within:
        raise ModeError(
            f"it answers otherwise than the plain model: the logits are off by {error:.1e} of "
            f"their norm, where {within:.0e} is allowed"
        )
    return taken


def reference_encoders(
    backbone: BackboneConfig, device: torch.device
) -> dict[str, Callable[[], Encode]]:
    """Makers of the encoder by name: fp32 eager, bf16 eager, and on a GPU bf16 compiled.

    Raises:
        ImportError: transformers is not installed, or too old to have DINOv3.
    """
    from transformers import DINOv3ViTConfig, DINOv3ViTModel

    config = DINOv3ViTConfig(
        hidden_size=backbone.dim,
        intermediate_size=backbone.ffn,
        num_hidden_layers=backbone.depth,
        num_attention_heads=backbone.heads,
        num_register_tokens=backbone.registers,
        use_gated_mlp=backbone.gated,
    )

    def make(dtype: torch.dtype, compiled: bool) -> Callable[[], Encode]:
        def build() -> Encode:
            with device:
                model: nn.Module = DINOv3ViTModel(config)
            model.to(dtype).eval()
            if compiled:
                model.compile(dynamic=False)
            return lambda images: model(images.to(dtype))

        return build

    makers = {
        "fp32 eager": make(torch.float32, False),
        "bf16 eager": make(torch.bfloat16, False),
    }
    if device.type == "cuda":
        makers["bf16 compiled"] = make(torch.bfloat16, True)
    return makers
