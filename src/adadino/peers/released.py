"""Checkpoints that the authors of a peer released, as ours: their names to our names.

`names.py` has the rules. A name that no rule knows is an error, and so is a tensor of ours that
nothing gave. The values stay as they are, with five exceptions: BIT's encoder holds queries, keys
and values in one matrix; ChangeFormer projects with linear layers where we have convolutions of one
pixel, and fuses its scales from the coarsest to the finest; ChangeMamba and RS-Mamba do the former
too; the FCs decode with transposed convolutions of stride 1, whose kernels are ours mirrored. What
ChangeTitans keeps for one head loses that dimension.

Repositories: AndreaCodegoni/Tiny_model_4_CD, justchenhao/BIT_CD, wgcban/ChangeFormer,
likyoo/Siam-NestedUNet, rcdaudt/fully_convolutional_change_detection, ChenHongruixuan/ChangeMamba,
walking-shadow/Official_Remote_Sensing_Mamba, zmoka-zht/CDMamba,
ChangeTitans/ChangeTitans.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from adadino.errors import ConfigError, WeightsError
from adadino.peers import build_peer
from adadino.peers.base import Peer
from adadino.peers.mobile_sam import load_mobile_sam
from adadino.peers.names import RULES

_WAYS_OF = {"changemamba": 4, "rs-mamba": 8}
_IDLE = {
    "bit": re.compile(r"resnet\.(layer4|fc)\."),
    "cdmamba": re.compile(r"(l_gf|g_gf|ag)([34]\.|\.|\d\.skip_scale)"),
    "changetitans": re.compile(r".+\.(mem\.memory_model|rotary_emb)\."),
}
"""Tensors that the authors' model has and never uses, and constants that it keeps as tensors."""
_ON_SAM = "sam-distance"
_WRAPPERS = ("model_G_state_dict", "state_dict", "model", "net")
"""What the authors' programs call the tensors, beside the optimiser's and their scores."""


def load_released(peer: str, path: Path) -> Peer:
    """Read a checkpoint of a peer's authors as our model.

    Args:
        peer: One of `RULES`, or sam-distance, whose file is MobileSAM's.
        path: A file of `torch.save` that holds the tensors; no code of it is run.

    Raises:
        ConfigError: No checkpoints of this peer are known.
        WeightsError: The file cannot be read, or does not hold this peer.
    """
    if peer not in RULES and peer != _ON_SAM:
        known = ", ".join([*RULES, _ON_SAM])
        raise ConfigError(
            f"checkpoints of {peer!r} cannot be converted; known are those of {known}."
        )
    model = build_peer(peer)
    if peer == _ON_SAM:
        model.get_submodule("encoder").load_state_dict(load_mobile_sam(path).state_dict())
    else:
        _fill(model, peer, path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    model.ancestors = ({"model": path.name, "digest": f"sha256:{digest}"},)
    return model.eval()


def _fill(model: Peer, peer: str, path: Path) -> None:
    """Give a model the authors' tensors, all of them or none."""
    tensors = translate(peer, _read(path))
    for name, wanted in model.state_dict().items():
        if name.endswith("num_batches_tracked"):  # files of older PyTorch have none
            tensors.setdefault(name, wanted)
        given = tensors.get(name)
        if given is None or given.shape != wanted.shape or not bool(given.isfinite().all()):
            found = "lacks" if given is None else f"has {tuple(given.shape)}, maybe not finite, for"
            raise WeightsError(
                f"{path} {found} {name} {tuple(wanted.shape)} of {peer}; it may be another model's."
            )
    if unknown := tensors.keys() - model.state_dict().keys():
        raise WeightsError(
            f"{path} holds {min(unknown)}, which {peer} has no place for; is it another model?"
        )
    model.load_state_dict(tensors)


def translate(peer: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The authors' tensors under our names.

    Raises:
        WeightsError: No rule knows a name.
    """
    ours: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        name = name.removeprefix("module.")  # of DataParallel
        if peer in _IDLE and _IDLE[peer].match(name):
            continue
        if peer == "bit" and "to_qkv" in name:
            for part, share in zip("qkv", tensor.chunk(3), strict=True):
                ours[_rename(peer, name.replace("to_qkv", f"to_{part}"))] = share.clone()
            continue
        if peer == "changeformer" and "linear_c" in name and tensor.ndim == 2:
            tensor = tensor[:, :, None, None]
        if peer == "changeformer" and name.endswith("linear_fuse.0.weight"):
            tensor = torch.cat(tensor.chunk(4, dim=1)[::-1], dim=1)
        if peer == "changetitans":
            tensor = _of_titans(name, tensor)
        if peer in _WAYS_OF:
            tensor = _as_convolution(name, tensor, _WAYS_OF[peer])
        if peer.startswith("fc-") and re.match(r"conv\d\dd\.weight", name):
            tensor = tensor.transpose(0, 1).flip(2, 3).contiguous()
        ours[_rename(peer, name)] = tensor
    return ours


def _as_convolution(name: str, tensor: Tensor, ways: int) -> Tensor:
    """Linear layers as convolutions of one pixel, and what is held for all ways of a scan apart."""
    if name.endswith(("A_logs", "Ds")):
        return tensor.unflatten(0, (ways, -1))
    if re.search(r"(in_proj|out_proj|fc1|fc2)\.weight$", name) and tensor.ndim == 2:
        return tensor[:, :, None, None]
    return tensor


def _of_titans(name: str, tensor: Tensor) -> Tensor:
    """Positions as a map, and what is held for one head without the head."""
    if name.endswith("pos_embed"):
        side = math.isqrt(tensor.shape[1])
        return tensor.transpose(1, 2).unflatten(2, (side, side))
    if "memory_model_parameters" in name:
        return tensor[0]
    return tensor.flatten() if name.endswith(("q_norm.gamma", "k_norm.gamma")) else tensor


def _rename(peer: str, name: str) -> str:
    for pattern, new in RULES[peer]:
        if match := re.match(pattern, name):
            return (match.expand(new) if isinstance(new, str) else new(match)) + name[match.end() :]
    raise WeightsError(
        f"{name} is no tensor of {peer} as its authors release it; it may be another model's."
    )


def _read(path: Path) -> dict[str, Tensor]:
    scalar: Any = np.float64(0).__reduce__()[
        0
    ]  # numpy's constructor of numbers: scores beside tensors
    numbers: list[Any] = [(scalar, f"numpy.{core}.multiarray.scalar") for core in ("core", "_core")]
    try:
        with torch.serialization.safe_globals([*numbers, np.dtype, type(np.dtype(np.float64))]):
            held: Any = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise WeightsError(f"there is no file {path}; check the path.") from error
    except Exception as error:  # torch, pickle and zip each raise their own
        raise WeightsError(
            f"cannot read {path}: it is damaged, or holds Python objects, which are never loaded. "
            "With the authors' code, save the tensors alone: torch.save(model.state_dict(), FILE)."
        ) from error
    for wrapper in _WRAPPERS:
        if isinstance(held, dict) and isinstance(held.get(wrapper), dict):
            held = held[wrapper]
    if not isinstance(held, dict) or not all(isinstance(v, Tensor) for v in held.values()):
        raise WeightsError(f"{path} holds no tensors by name; give a file with a state dict.")
    return held
