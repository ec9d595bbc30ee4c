"""transformers' `DINOv3ViTModel` of the same shape: the encoder alone, as others run it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from adadino.config import BackboneConfig

Encode = Callable[[Tensor], object]


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
