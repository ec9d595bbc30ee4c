"""Read a backbone's weights: Meta's `.pth`, Hugging Face's, timm's, an ONNX graph's, our own.

DINOv3 and DINOv2 alike; `tensor_files.py` opens the files and `layouts.py` has the names.

What is read must be exactly what the backbone needs: a missing, misshapen, unknown or non-finite
tensor is an error that names it, and nothing is half-loaded. No file runs code.

The normalisation belongs to the weights and travels with them: SAT-493M and LVD-1689M weights want
different ones, and the wrong one silently costs accuracy. DINOv2's is always ImageNet's.

A patch embedding of another size than the configuration's is resized where positions are learned,
as FlexiViT does (Beyer et al. 2023): DINOv2's 14 pixels become 16, and an image of 512 pixels gives
32 x 32 tokens, as with DINOv3.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from adadino.config import LVD_MEAN, LVD_STD, PRESETS, SAT_MEAN, SAT_STD, BackboneConfig
from adadino.errors import NormalizationWarning, WeightsError
from adadino.model.backbone import Backbone
from adadino.model.layouts import find_layout, translate
from adadino.model.tensor_files import read_source


class BackboneWeights(NamedTuple):
    """Weights under our names, and what their files say about them."""

    tensors: dict[str, Tensor]
    layout: str
    """Whose names the file uses: huggingface, timm, meta or adadino."""
    config: BackboneConfig
    """The backbone's configuration with the normalisation and origin of these weights."""


def read_backbone(source: str | Path, config: BackboneConfig | None = None) -> BackboneWeights:
    """Read and check backbone weights.

    Args:
        source: A file, a folder, a hub id such as `facebook/dinov3-vitl16-pretrain-sat493m`, or a
            model of ours that holds its backbone: a checkpoint's folder, a bundled model's name.
        config: The backbone they must fit; by default the preset whose shapes they have.

    Raises:
        WeightsError: The weights cannot be found, read or used; the message says which and why.
    """
    raw, described = _own(*read_source(source))
    layout = find_layout(raw, source)
    tensors = translate(raw, layout, source)
    if config is None:
        config = _recognise(tensors, source)
    heads = described.get("num_attention_heads", described.get("heads", config.heads))
    if heads != config.heads:  # the tensors fit any number of heads, but only one is right
        raise WeightsError(
            f"{source} has {heads} attention heads, {config.name} {config.heads}; choose "
            "the preset they are for."
        )
    theta = described.get("rope_theta", config.rope_theta)
    if theta != config.rope_theta:  # the tensors do not tell the rotary periods either
        raise WeightsError(
            f"{source} has rope_theta {theta}, {config.name} {config.rope_theta}; set "
            "model.backbone.rope_theta to the weights' own."
        )
    if config.qkv_bias and layout == "timm" and "blocks.0.attn.q_bias" not in tensors:
        # timm leaves out the query and value biases of models where all of them are zero.
        for i in range(config.depth):
            for name in ("q_bias", "v_bias"):
                tensors[f"blocks.{i}.attn.{name}"] = torch.zeros(config.dim)
    patches = tensors.get("patch_embed.weight")
    if config.grid and patches is not None and patches.ndim == 4:
        tensors["patch_embed.weight"] = resize_patches(patches, config.patch)
    check_backbone(tensors, config, source)
    mean, std = _normalisation(source, described, config)
    config = dataclasses.replace(
        config,
        mean=mean,
        std=std,
        weights=str(source),
        fingerprint=fingerprint(tensors),
        grid_offset=described.get("grid_offset", config.grid_offset),
    )
    return BackboneWeights(tensors, layout, config)


def resize_patches(weight: Tensor, side: int) -> Tensor:
    """Resize a patch embedding (D, 3, p, p) so that resized patches give the same tokens.

    With B the matrix that enlarges a patch bilinearly, <B x, w'> = <x, w> for every patch x is
    solved by the pseudo-inverse, w' = (B^T)^+ w.
    """
    old = weight.shape[-1]
    if side == old:
        return weight
    unit = torch.eye(old * old, dtype=torch.float64).view(-1, 1, old, old)
    enlarge = F.interpolate(unit, (side, side), mode="bilinear").flatten(1)  # B^T: (old^2, side^2)
    inverse = torch.linalg.pinv(enlarge)  # (side^2, old^2)
    resized = weight.double().flatten(2) @ inverse.t()
    return resized.unflatten(2, (side, side)).to(weight.dtype)


def _own(
    raw: dict[str, Tensor], described: dict[str, Any]
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The backbone inside one of our checkpoints; anything else is returned as it is."""
    model = described.get("model")
    if not isinstance(model, dict) or not isinstance(model.get("backbone"), dict):
        return raw, described
    for prefix in ("encoder.backbone.", "backbone."):
        mine = {n.removeprefix(prefix): t for n, t in raw.items() if n.startswith(prefix)}
        if mine:
            return mine, model["backbone"]
    return raw, described


def make_backbone(weights: BackboneWeights) -> Backbone:
    """Build a backbone around weights, without drawing random ones first."""
    with torch.device("meta"):
        backbone = Backbone(weights.config)
    backbone.load_state_dict(weights.tensors, assign=True)
    return backbone


def fingerprint(tensors: dict[str, Tensor]) -> str:
    """Digest of the vectors among the weights (norms, scales, biases, tokens), which are small."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        if tensor.ndim == 1 or "token" in name or name == "registers":
            digest.update(f"{name}{tuple(tensor.shape)}".encode())
            digest.update(tensor.detach().float().cpu().contiguous().numpy().tobytes())
    return f"sha256:{digest.hexdigest()[:16]}"


def _recognise(tensors: dict[str, Tensor], source: str | Path) -> BackboneConfig:
    """The preset with these shapes; the number of heads cannot be read off the tensors."""
    known = _fitting_preset(tensors)
    if known is None:
        raise WeightsError(
            f"{source} has width, depth, FFN width and gating {_shape(tensors)}, which is no "
            f"preset: {', '.join(PRESETS)}."
        )
    return known


def _fitting_preset(tensors: dict[str, Tensor]) -> BackboneConfig | None:
    positions, registers = (tensors.get(name) for name in ("positions", "registers"))
    for known in (config.backbone for config in PRESETS.values()):
        same = (known.dim, known.depth, known.ffn, known.gated) == _shape(tensors)
        if positions is not None and registers is not None:
            same = same and known.registers == registers.shape[1]
        if same and (known.grid > 0) == (positions is not None):
            return known
    return None


def _shape(tensors: dict[str, Tensor]) -> tuple[int, int, int, bool]:
    blocks = {name.split(".")[1] for name in tensors if name.startswith("blocks.")}
    up = tensors.get("blocks.0.ffn.up.weight", torch.empty(0))
    ffn, dim = up.shape if up.ndim == 2 else (0, 0)
    return dim, len(blocks), ffn, "blocks.0.ffn.gate.weight" in tensors


def check_backbone(tensors: dict[str, Tensor], config: BackboneConfig, source: str | Path) -> None:
    """Refuse tensors that are not exactly, by name and shape, what a backbone needs."""
    with torch.device("meta"):
        wanted = {name: tuple(t.shape) for name, t in Backbone(config).state_dict().items()}
    missing = [name for name in wanted if name not in tensors]
    extra = [name for name in tensors if name not in wanted]
    wrong = [n for n in wanted if n in tensors and tuple(tensors[n].shape) != wanted[n]]
    if missing or extra or wrong:
        if wrong:
            what = f"{wrong[0]} is {tuple(tensors[wrong[0]].shape)}, not {wanted[wrong[0]]}"
        elif missing:
            what = f"{missing[0]} is missing"
        else:
            what = f"{extra[0]} has no place"
        count = len(missing) + len(extra) + len(wrong) - 1
        more = f" (and {count} more tensors differ)" if count else ""
        fits = _fitting_preset(tensors)
        way = "download them again"
        if fits is not None and fits.name != config.name:
            way = f"they look like {fits.name}: choose that preset"
        raise WeightsError(f"{source} does not fit {config.name}: {what}{more}; {way}.")
    for name, tensor in tensors.items():
        if not bool(tensor.isfinite().all()):
            raise WeightsError(f"{source}: {name} holds NaN or infinity; download it again.")


def _normalisation(
    source: str | Path, described: dict[str, Any], config: BackboneConfig
) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
    """Mean and deviation, from the files beside the weights or from their name."""
    said = described.get("pretrained_cfg")
    said = said if isinstance(said, dict) else described
    for mean, std in (
        (said.get("image_mean"), said.get("image_std")),
        (said.get("mean"), said.get("std")),
    ):
        if mean is not None and std is not None:
            try:
                a, b = [float(v) for v in mean], [float(v) for v in std]
                if len(a) == len(b) == 3 and min(b) > 0 and all(map(math.isfinite, a + b)):
                    return (a[0], a[1], a[2]), (b[0], b[1], b[2])
            except (TypeError, ValueError, OverflowError):
                pass
            raise WeightsError(
                f"{source} gives mean {mean!r} and std {std!r}: not three numbers each; "
                "download it again."
            )
    # The name of the file or, for model.safetensors, of its folder.
    name = "/".join(Path(source).parts[-2:]).lower()
    if "sat493m" in name:
        return SAT_MEAN, SAT_STD
    if "lvd1689m" in name or config.grid:
        return LVD_MEAN, LVD_STD
    warnings.warn(
        f"{source} does not say how its images were normalised (neither sat493m nor lvd1689m in "
        f"its name, no preprocessor_config.json); using mean {config.mean}, std {config.std}. Set "
        "model.backbone.mean and model.backbone.std if that is wrong.",
        NormalizationWarning,
        stacklevel=4,
    )
    return config.mean, config.std
