"""The names DINOv3's tensors go by in Meta's, Hugging Face's and timm's releases, and ours.

Each layout is a table of renamings to our names. Queries, keys and values are joined; the key's
bias, zero by construction, is dropped. A name that no table has belongs to another model, and is
an error.
"""

from __future__ import annotations

import re
from pathlib import Path

import torch
from torch import Tensor

from adadino.errors import WeightsError

LAYOUTS: dict[str, tuple[tuple[str, str], ...]] = {
    "huggingface": (
        (r"embeddings\.cls_token", "cls_token"),
        (r"embeddings\.register_tokens", "registers"),
        (r"embeddings\.patch_embeddings\.(weight|bias)", r"patch_embed.\1"),
        # The module path moved between releases of transformers.
        (r"(?:model\.)?layer\.(\d+)\.(norm[12])\.(weight|bias)", r"blocks.\1.\2.\3"),
        (
            r"(?:model\.)?layer\.(\d+)\.attention\.([qkv])_proj\.(weight|bias)",
            r"blocks.\1.attn.\2.\3",
        ),
        (r"(?:model\.)?layer\.(\d+)\.attention\.o_proj\.(weight|bias)", r"blocks.\1.attn.proj.\2"),
        (r"(?:model\.)?layer\.(\d+)\.layer_scale([12])\.lambda1", r"blocks.\1.ls\2"),
        (
            r"(?:model\.)?layer\.(\d+)\.mlp\.(gate|up|down)_proj\.(weight|bias)",
            r"blocks.\1.ffn.\2.\3",
        ),
        (r"norm\.(weight|bias)", r"norm.\1"),
        (r"embeddings\.mask_token", ""),
    ),
    "timm": (
        (r"cls_token", "cls_token"),
        (r"reg_token", "registers"),
        (r"patch_embed\.proj\.(weight|bias)", r"patch_embed.\1"),
        (r"blocks\.(\d+)\.(norm[12])\.(weight|bias)", r"blocks.\1.\2.\3"),
        (r"blocks\.(\d+)\.attn\.(qkv\.weight|proj\.weight|proj\.bias)", r"blocks.\1.attn.\2"),
        (r"blocks\.(\d+)\.attn\.([qv])_bias", r"blocks.\1.attn.\2_bias"),
        (r"blocks\.(\d+)\.gamma_([12])", r"blocks.\1.ls\2"),
        (r"blocks\.(\d+)\.mlp\.fc1_g\.(weight|bias)", r"blocks.\1.ffn.gate.\2"),
        (r"blocks\.(\d+)\.mlp\.fc1(?:_x)?\.(weight|bias)", r"blocks.\1.ffn.up.\2"),
        (r"blocks\.(\d+)\.mlp\.fc2\.(weight|bias)", r"blocks.\1.ffn.down.\2"),
        (r"norm\.(weight|bias)", r"norm.\1"),
        (r"rope\.periods|mask_token|.*\.attn\.k_bias", ""),
    ),
    "meta": (
        (r"cls_token", "cls_token"),
        (r"storage_tokens", "registers"),
        (r"patch_embed\.proj\.(weight|bias)", r"patch_embed.\1"),
        (r"blocks\.(\d+)\.(norm[12])\.(weight|bias)", r"blocks.\1.\2.\3"),
        (
            r"blocks\.(\d+)\.attn\.(qkv\.weight|qkv\.bias|proj\.weight|proj\.bias)",
            r"blocks.\1.attn.\2",
        ),
        (r"blocks\.(\d+)\.ls([12])\.gamma", r"blocks.\1.ls\2"),
        (r"blocks\.(\d+)\.mlp\.w1\.(weight|bias)", r"blocks.\1.ffn.gate.\2"),
        (r"blocks\.(\d+)\.mlp\.(?:fc1|w2)\.(weight|bias)", r"blocks.\1.ffn.up.\2"),
        (r"blocks\.(\d+)\.mlp\.(?:fc2|w3)\.(weight|bias)", r"blocks.\1.ffn.down.\2"),
        (r"norm\.(weight|bias)", r"norm.\1"),
        # Not needed to encode: the key's bias mask, periods that follow from theta, the token of
        # masked pretraining, the second class-token norm of the SAT and 7B checkpoints.
        (r".*\.bias_mask|rope_embed\.periods|mask_token|local_cls_norm\..*", ""),
    ),
    "adadino": ((r"((?:patch_embed|cls_token|registers|blocks|norm)(?:\..*)?)", r"\1"),),
}

_MARKS = {
    "huggingface": "embeddings.cls_token",
    "timm": "reg_token",
    "meta": "storage_tokens",
    "adadino": "registers",
}


def find_layout(raw: dict[str, Tensor], source: str | Path) -> str:
    """Tell whose release this is by a name that only it has."""
    for layout, mark in _MARKS.items():
        if mark in raw:
            return layout
    names = ", ".join(list(raw)[:3]) or "nothing"
    raise WeightsError(
        f"{source} is not DINOv3 in Meta's, Hugging Face's or timm's layout: it begins with "
        f"{names}."
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
                f"{source} ({layout} layout) holds {name}, which no DINOv3 backbone has; is it a "
                "fine-tuned or another model? Give the pretrained backbone."
            )
    for name in [n for n in renamed if n.endswith("attn.qkv.bias")]:
        bias = renamed.pop(name)
        if bias.ndim != 1 or len(bias) % 3:
            raise WeightsError(
                f"{source}: {name} is {tuple(bias.shape)}, not three equal parts; download "
                "it again."
            )
        q, _, v = bias.tensor_split(3)  # the key's third is masked to zero in DINOv3
        renamed[name.replace("qkv.bias", "q_bias")] = q
        renamed[name.replace("qkv.bias", "v_bias")] = v
    for name in [n for n in renamed if n.endswith("attn.q.weight")]:
        stem = name.removesuffix("q.weight")
        parts = [renamed.pop(f"{stem}{x}.weight") for x in "qkv" if f"{stem}{x}.weight" in renamed]
        if len(parts) < 3 or len({p.shape for p in parts}) > 1 or parts[0].ndim != 2:
            raise WeightsError(
                f"{source} lacks a query, key or value projection of equal shape beside {name}; "
                "download it again."
            )
        renamed[f"{stem}qkv.weight"] = torch.cat(parts)
        for x in "qv":
            if f"{stem}{x}.bias" in renamed:
                renamed[f"{stem}{x}_bias"] = renamed.pop(f"{stem}{x}.bias")
    # .contiguous(): parts of a joined tensor must not keep the whole alive.
    return {name: tensor.float().contiguous() for name, tensor in renamed.items()}
