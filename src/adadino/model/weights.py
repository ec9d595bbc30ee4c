"""Read DINOv3 weights: Meta's `.pth`, Hugging Face's folder or hub id, timm's safetensors, our own.

What is read must be exactly what the backbone needs: a missing, misshapen, unknown or non-finite
tensor is an error that names it, and nothing is half-loaded. No file runs code.

The normalisation belongs to the weights and travels with them: SAT-493M and LVD-1689M weights want
different ones, and the wrong one silently costs accuracy.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import os
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from adadino.bundled import bundled
from adadino.config import LVD_MEAN, LVD_STD, PRESETS, SAT_MEAN, SAT_STD, BackboneConfig
from adadino.errors import NormalizationWarning, WeightsError
from adadino.files import read_json
from adadino.hub import fetch, is_hub_id
from adadino.model.backbone import Backbone
from adadino.model.layouts import find_layout, translate


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
    raw, described = _own(*_read(source))
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
    check_backbone(tensors, config, source)
    mean, std = _normalisation(source, described, config)
    return BackboneWeights(
        tensors,
        layout,
        dataclasses.replace(
            config, mean=mean, std=std, weights=str(source), fingerprint=fingerprint(tensors)
        ),
    )


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


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a safetensors file or a pickled state dict without running its code."""
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(path)
        data: Any = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise WeightsError(f"there is no weights file {path}; check the path.") from error
    except Exception as error:  # torch, pickle, zip and safetensors each raise their own
        reason = str(error).splitlines()[0][:160] if str(error) else type(error).__name__
        raise WeightsError(
            f"cannot read weights from {path}: {reason}. The file is truncated, is not a "
            "checkpoint, or holds Python objects, which are never loaded; download it again."
        ) from error
    for wrapper in ("model", "state_dict", "teacher"):
        if isinstance(data, dict) and isinstance(data.get(wrapper), dict):
            data = data[wrapper]
    if not isinstance(data, dict) or not all(
        isinstance(name, str) and _is_plain(value) for name, value in data.items()
    ):
        raise WeightsError(
            f"{path} holds no state dict of plain tensors; give the backbone as Meta, Hugging "
            "Face or timm publish it."
        )
    return data


def _read(source: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors under the names of their file, and the JSON beside them."""
    path = Path(source)
    if not os.path.exists(path) and (ours := bundled(str(source))):  # noqa: PTH110
        path = ours
    if not os.path.exists(path):  # noqa: PTH110, pathlib raises for names that are too long
        if not is_hub_id(source):
            raise WeightsError(
                f"there is no weights file or folder {source}; check the path, or give a hub id, "
                "OWNER/NAME."
            )
        path = fetch(str(source))
    folder = path if path.is_dir() else path.parent
    described: dict[str, Any] = {}
    for name in ("config.json", "preprocessor_config.json"):
        if (path.is_dir() or path.suffix == ".safetensors") and (folder / name).is_file():
            described |= read_json(folder / name)
    if path.is_file():
        return read_tensors(path), described
    index = path / "model.safetensors.index.json"
    if index.is_file():
        shards = read_json(index).get("weight_map")
        names = [str(name) for name in shards.values()] if isinstance(shards, dict) else []
        names = sorted(set(names))
        if not names or any(Path(name).name != name for name in names):
            raise WeightsError(
                f"{index} names no weight files of its own folder; download the folder again."
            )
    else:
        names = ["model.safetensors"]
    tensors: dict[str, Tensor] = {}
    for name in names:
        tensors |= read_tensors(path / name)
    return tensors, described


def _is_plain(value: Any) -> bool:
    return (
        isinstance(value, Tensor)
        and value.layout is torch.strided
        and value.device.type == "cpu"
        and not value.is_quantized
    )


def _recognise(tensors: dict[str, Tensor], source: str | Path) -> BackboneConfig:
    """The preset with these shapes; the number of heads cannot be read off the tensors."""
    known = _preset_of_shape(_shape(tensors))
    if known is None:
        raise WeightsError(
            f"{source} has width, depth, FFN width and gating {_shape(tensors)}, which is no "
            f"preset: {', '.join(PRESETS)}."
        )
    return known


def _preset_of_shape(shape: tuple[int, int, int, bool]) -> BackboneConfig | None:
    for known in (config.backbone for config in PRESETS.values()):
        if (known.dim, known.depth, known.ffn, known.gated) == shape:
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
        fits = _preset_of_shape(_shape(tensors))
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
    if "lvd1689m" in name:
        return LVD_MEAN, LVD_STD
    warnings.warn(
        f"{source} does not say how its images were normalised (neither sat493m nor lvd1689m in "
        f"its name, no preprocessor_config.json); using mean {config.mean}, std {config.std}. Set "
        "model.backbone.mean and model.backbone.std if that is wrong.",
        NormalizationWarning,
        stacklevel=4,
    )
    return config.mean, config.std
