"""The names a backbone's tensors go by in Meta's, Hugging Face's and timm's releases, and ours.

Each layout is a table of renamings to our names, for DINOv3 and DINOv2 in one: they share most. A
name that no table has belongs to another model, and is an error. Afterwards tensors are joined and
split as our backbone has them:

- Queries, keys and values are joined. The key's bias is dropped: DINOv3's is zero by construction,
  DINOv2's adds the same to all scores of a query.
- The two input projections of a gated FFN, which DINOv2 packs into one, are split.
- The first learned position is the class token's and is added to it; timm has done so already in
  its models with registers.
"""

from __future__ import annotations

import math
import re
from pathlib import Path

import torch
from torch import Tensor

from adadino.errors import WeightsError

# Where transformers keeps a block: the path moved between releases, and DINOv2 has another.
_LAYER = r"(?:model\.|encoder\.)?layer\.(\d+)"

LAYOUTS: dict[str, tuple[tuple[str, str], ...]] = {
    "huggingface": (
        (r"embeddings\.cls_token", "cls_token"),
        (r"embeddings\.register_tokens", "registers"),
        (r"embeddings\.patch_embeddings\.(?:projection\.)?(weight|bias)", r"patch_embed.\1"),
        (r"embeddings\.position_embeddings", "positions"),
        (rf"{_LAYER}\.(norm[12])\.(weight|bias)", r"blocks.\1.\2.\3"),
        (rf"{_LAYER}\.attention\.([qkv])_proj\.(weight|bias)", r"blocks.\1.attn.\2.\3"),
        (
            rf"{_LAYER}\.attention\.attention\.([qkv])(?:uery|ey|alue)\.(weight|bias)",
            r"blocks.\1.attn.\2.\3",
        ),
        (
            rf"{_LAYER}\.attention\.(?:o_proj|output\.dense)\.(weight|bias)",
            r"blocks.\1.attn.proj.\2",
        ),
        (rf"{_LAYER}\.layer_scale([12])\.lambda1", r"blocks.\1.ls\2"),
        (rf"{_LAYER}\.mlp\.(gate|up|down)_proj\.(weight|bias)", r"blocks.\1.ffn.\2.\3"),
        (rf"{_LAYER}\.mlp\.(?:fc1|weights_in)\.(weight|bias)", r"blocks.\1.ffn.up.\2"),
        (rf"{_LAYER}\.mlp\.(?:fc2|weights_out)\.(weight|bias)", r"blocks.\1.ffn.down.\2"),
        (r"(?:layer)?norm\.(weight|bias)", r"norm.\1"),
        (r"embeddings\.mask_token", ""),
    ),
    "timm": (
        (r"cls_token", "cls_token"),
        (r"reg_token", "registers"),
        (r"pos_embed", "positions"),
        (r"patch_embed\.proj\.(weight|bias)", r"patch_embed.\1"),
        (r"blocks\.(\d+)\.(norm[12])\.(weight|bias)", r"blocks.\1.\2.\3"),
        (r"blocks\.(\d+)\.attn\.((?:qkv|proj)\.(?:weight|bias))", r"blocks.\1.attn.\2"),
        (r"blocks\.(\d+)\.attn\.([qv])_bias", r"blocks.\1.attn.\2_bias"),
        (r"blocks\.(\d+)\.gamma_([12])", r"blocks.\1.ls\2"),
        (r"blocks\.(\d+)\.ls([12])\.gamma", r"blocks.\1.ls\2"),
        (r"blocks\.(\d+)\.mlp\.fc1_g\.(weight|bias)", r"blocks.\1.ffn.gate.\2"),
        (r"blocks\.(\d+)\.mlp\.fc1(?:_x)?\.(weight|bias)", r"blocks.\1.ffn.up.\2"),
        (r"blocks\.(\d+)\.mlp\.fc2\.(weight|bias)", r"blocks.\1.ffn.down.\2"),
        (r"norm\.(weight|bias)", r"norm.\1"),
        (r"rope\.periods|mask_token|.*\.attn\.k_bias", ""),
    ),
    "meta": (
        (r"cls_token", "cls_token"),
        (r"storage_tokens|register_tokens", "registers"),
        (r"pos_embed", "positions"),
        (r"patch_embed\.proj\.(weight|bias)", r"patch_embed.\1"),
        (r"blocks\.(\d+)\.(norm[12])\.(weight|bias)", r"blocks.\1.\2.\3"),
        (r"blocks\.(\d+)\.attn\.((?:qkv|proj)\.(?:weight|bias))", r"blocks.\1.attn.\2"),
        (r"blocks\.(\d+)\.ls([12])\.gamma", r"blocks.\1.ls\2"),
        (r"blocks\.(\d+)\.mlp\.w1\.(weight|bias)", r"blocks.\1.ffn.gate.\2"),
        (r"blocks\.(\d+)\.mlp\.(?:fc1|w2|w12)\.(weight|bias)", r"blocks.\1.ffn.up.\2"),
        (r"blocks\.(\d+)\.mlp\.(?:fc2|w3)\.(weight|bias)", r"blocks.\1.ffn.down.\2"),
        (r"norm\.(weight|bias)", r"norm.\1"),
        # Not needed to encode: the key's bias mask, periods that follow from theta, the token of
        # masked pretraining, the second class-token norm of the SAT and 7B checkpoints.
        (r".*\.bias_mask|rope_embed\.periods|mask_token|local_cls_norm\..*", ""),
    ),
    "adadino": ((r"((?:patch_embed|cls_token|registers|positions|blocks|norm)(?:\..*)?)", r"\1"),),
}

# The first of these names that a file has tells whose release it is.
_MARKS = (
    ("embeddings.cls_token", "huggingface"),
    ("reg_token", "timm"),
    ("storage_tokens", "meta"),
    ("registers", "adadino"),
    ("register_tokens", "meta"),
    ("mask_token", "meta"),
    ("pos_embed", "timm"),
)


def find_layout(raw: dict[str, Tensor], source: str | Path) -> str:
    """Tell whose release this is by a name that only it has."""
    for mark, layout in _MARKS:
        if mark in raw:
            return layout
    names = ", ".join(list(raw)[:3]) or "nothing"
    raise WeightsError(
        f"{source} is not DINOv3 or DINOv2 in Meta's, Hugging Face's or timm's layout: it begins "
        f"with {names}."
    )


def translate(raw: dict[str, Tensor], layout: str, source: str | Path) -> dict[str, Tensor]:
    """Give the tensors our names, in float32, joined and split as our backbone has them."""
    rules = [(re.compile(pattern), target) for pattern, target in LAYOUTS[layout]]
    renamed: dict[str, Tensor] = {}
    for name, tensor in raw.items():
        for pattern, target in rules:
            match = pattern.fullmatch(name)
            if match:
                if target:
                    renamed[match.expand(target)] = tensor
                break
        else:
            raise WeightsError(
                f"{source} ({layout} layout) holds {name}, which no DINO backbone has; is it a "
                "fine-tuned or another model? Give the pretrained backbone."
            )
    _split_biases(renamed, source)
    _join_projections(renamed, source)
    if "positions" in renamed:
        _settle_dinov2(renamed, source)
    # .contiguous(): parts of a joined tensor must not keep the whole alive.
    return {name: tensor.float().contiguous() for name, tensor in renamed.items()}


def _split_biases(tensors: dict[str, Tensor], source: str | Path) -> None:
    for name in [n for n in tensors if n.endswith("attn.qkv.bias")]:
        bias = tensors.pop(name)
        if bias.ndim != 1 or len(bias) % 3:
            raise WeightsError(
                f"{source}: {name} is {tuple(bias.shape)}, not three equal parts; download "
                "it again."
            )
        q, _, v = bias.tensor_split(3)  # the key's third does nothing
        tensors[name.replace("qkv.bias", "q_bias")] = q
        tensors[name.replace("qkv.bias", "v_bias")] = v


def _join_projections(tensors: dict[str, Tensor], source: str | Path) -> None:
    for name in [n for n in tensors if n.endswith("attn.q.weight")]:
        stem = name.removesuffix("q.weight")
        parts = [tensors.pop(f"{stem}{x}.weight") for x in "qkv" if f"{stem}{x}.weight" in tensors]
        if len(parts) < 3 or len({p.shape for p in parts}) > 1 or parts[0].ndim != 2:
            raise WeightsError(
                f"{source} lacks a query, key or value projection of equal shape beside {name}; "
                "download it again."
            )
        tensors[f"{stem}qkv.weight"] = torch.cat(parts)
        for x in "qv":
            if f"{stem}{x}.bias" in tensors:
                tensors[f"{stem}{x}_bias"] = tensors.pop(f"{stem}{x}.bias")


def _settle_dinov2(tensors: dict[str, Tensor], source: str | Path) -> None:
    """What only DINOv2 has: learned positions, keys with a bias, packed gates, no registers."""
    positions, token = tensors["positions"], tensors.get("cls_token")
    if positions.ndim != 3 or token is None or token.shape != positions[:, :1].shape:
        raise WeightsError(
            f"{source}: positions of shape {tuple(positions.shape)} do not fit its class token; "
            "download it again."
        )
    if math.isqrt(positions.shape[1]) ** 2 != positions.shape[1]:
        tensors["cls_token"] = token + positions[:, :1]
        tensors["positions"] = positions[:, 1:]
    tensors.setdefault("registers", token[:, :0])
    for name in [n for n in tensors if n.endswith("attn.k.bias")]:
        del tensors[name]  # with rotary positions it would count
    for name in [n for n in tensors if n.endswith("ffn.down.weight")]:
        stem, hidden = name.removesuffix("down.weight"), tensors[name].shape[-1]
        for kind in ("weight", "bias"):
            both = tensors.get(f"{stem}up.{kind}")
            if both is not None and both.shape[0] == 2 * hidden:
                tensors[f"{stem}gate.{kind}"], tensors[f"{stem}up.{kind}"] = both.chunk(2)
