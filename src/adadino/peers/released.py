"""Checkpoints that the authors of a peer released, as ours: their names to our names.

A rule is a pattern over the authors' names and what it becomes. The first rule that matches counts,
a name that no rule knows is an error, and so is a tensor of ours that nothing gave. The values stay
as they are, with three exceptions: BIT's encoder holds queries, keys and values in one matrix;
ChangeFormer projects with linear layers where we have convolutions of one pixel, and fuses its
scales from the coarsest to the finest; the FCs decode with transposed convolutions of stride 1,
whose kernels are ours mirrored.

Repositories: AndreaCodegoni/Tiny_model_4_CD, justchenhao/BIT_CD, wgcban/ChangeFormer,
likyoo/Siam-NestedUNet, rcdaudt/fully_convolutional_change_detection, ChenHongruixuan/ChangeMamba,
walking-shadow/Official_Remote_Sensing_Mamba.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from adadino.errors import ConfigError, WeightsError
from adadino.peers import build_peer
from adadino.peers.base import Peer

Rule = tuple[str, str | Callable[[re.Match[str]], str]]

_CONV_ACT = ("conv", "act")
_RESNET = {"conv": "conv", "bn": "norm", "downsample.": "shortcut."}
_MIT = {
    "attn.q": "attention.query", "attn.kv": "attention.key_value", "attn.proj": "attention.proj",
    "attn.sr": "attention.shrink", "attn.norm": "attention.norm", "mlp.fc1": "ffn.up",
    "mlp.fc2": "ffn.down", "mlp.dwconv.dwconv": "ffn.local",
}  # fmt: skip
_PATCHES = {"0": "0", "2": "1", "5": "3", "7": "4"}
_WAYS = {"cat": "stacked", "interleave": "in_turn", "split": "beside"}
_MBCONV = ("expand", "filter", "", "project")

_TINYCD: tuple[Rule, ...] = (
    (r"_backbone\.0\.", "trunk.0.0."),
    (r"_backbone\.(\d)\.(\d)\.block\.(\d)\.(fc\d)?", lambda m: _mbconv(*m.groups())),
    (r"_first_mix\._mixing\._convmix\.(\d)", lambda m: f"masks.0.0.{_CONV_ACT[int(m[1])]}"),
    (r"_first_mix\._linear\._linears\.(\d)\.(\d)", lambda m: f"masks.0.1.{_flat(m[1], m[2])}"),
    (
        r"_mixing_mask\.([01])\._mixing\._convmix\.(\d)",
        lambda m: f"masks.{int(m[1]) + 1}.0.{_CONV_ACT[int(m[2])]}",
    ),
    (
        r"_mixing_mask\.([01])\._linear\._linears\.(\d)\.(\d)",
        lambda m: f"masks.{int(m[1]) + 1}.1.{_flat(m[2], m[3])}",
    ),
    (r"_mixing_mask\.2\._convmix\.(\d)", lambda m: f"mix.{_CONV_ACT[int(m[1])]}"),
    (r"_up\.(\d)\._convolution\.", r"ups.\1.conv."),
    (r"_classify\._linears\.(\d)\.(\d)", lambda m: f"head.{_flat(m[1], m[2])}"),
)


def _mbconv(stage: str, block: str, part: str, excitation: str | None) -> str:
    # The first stage expands nothing, so its blocks have one part less.
    plain = f"{_MBCONV[int(part) + (stage == '1')]}."
    inner = {"fc1": "squeeze", "fc2": "excite"}[excitation] if excitation else plain
    return f"trunk.{stage}.{block}.{inner}"


def _flat(layer: str, part: str) -> str:
    """Pairs of a convolution and an activation, one after the other."""
    return str(2 * int(layer) + int(part))


_BIT_LAYER: tuple[tuple[str, str], ...] = (
    (r"0\.fn\.norm\.", "norm1."),
    (r"0\.fn\.fn\.to_q\.", "query."),
    (r"0\.fn\.fn\.to_k\.", "key."),
    (r"0\.fn\.fn\.to_v\.", "value."),
    (r"0\.fn\.fn\.to_out\.0\.", "proj."),
    (r"1\.fn\.norm\.", "norm2."),
    (r"1\.fn\.fn\.net\.0\.", "ffn.0."),
    (r"1\.fn\.fn\.net\.3\.", "ffn.2."),
)
_BIT: tuple[Rule, ...] = (
    (r"pos_embedding$", "places"),
    (r"resnet\.conv1\.", "trunk.0."),
    (r"resnet\.bn1\.", "trunk.1."),
    (
        r"resnet\.layer([123])\.([01])\.(conv|bn|downsample\.)(\d)",
        lambda m: f"trunk.{2 + 2 * int(m[1]) + int(m[2])}.{_RESNET[m[3]]}{m[4]}",
    ),
    (r"conv_pred\.", "reduce."),
    (r"conv_a\.", "attend."),
    (r"classifier\.", "head."),
    *((rf"transformer\.layers\.0\.{theirs}", f"encoder.{ours}") for theirs, ours in _BIT_LAYER),
    *(
        (rf"transformer_decoder\.layers\.(\d)\.{theirs}", rf"decoder.\1.{ours}")
        for theirs, ours in _BIT_LAYER
    ),
)

_CHANGEFORMER: tuple[Rule, ...] = (
    (r"Tenc_x2\.patch_embed(\d)\.proj\.", lambda m: f"{_stage(m)}.embed."),
    (r"Tenc_x2\.patch_embed(\d)\.norm\.", lambda m: f"{_stage(m)}.norm1."),
    (r"Tenc_x2\.norm(\d)\.", lambda m: f"{_stage(m)}.norm2."),
    (r"Tenc_x2\.block(\d)\.(\d)\.(norm\d)\.", lambda m: f"{_stage(m)}.blocks.{m[2]}.{m[3]}."),
    (
        r"Tenc_x2\.block(\d)\.(\d)\.(attn\.(?:q|kv|proj|sr|norm)|mlp\.(?:fc1|fc2|dwconv\.dwconv))\.",
        lambda m: f"{_stage(m)}.blocks.{m[2]}.{_MIT[m[3]]}.",
    ),
    (r"TDec_x2\.linear_c(\d)\.proj\.", lambda m: f"project.{int(m[1]) - 1}."),
    (r"TDec_x2\.diff_c(\d)\.", lambda m: f"difference.{int(m[1]) - 1}."),
    (r"TDec_x2\.make_pred_c(\d)\.", lambda m: f"prediction.{int(m[1]) - 1}."),
    (r"TDec_x2\.linear_fuse\.", "fuse."),
    (r"TDec_x2\.convd2x\.conv2d\.", "enlarge.0.up."),
    (r"TDec_x2\.convd1x\.conv2d\.", "enlarge.1.up."),
    (r"TDec_x2\.dense_2x\.0\.(conv\d)\.conv2d\.", r"enlarge.0.\1."),
    (r"TDec_x2\.dense_1x\.0\.(conv\d)\.conv2d\.", r"enlarge.1.\1."),
    (r"TDec_x2\.change_probability\.conv2d\.", "head."),
)


def _stage(match: re.Match[str]) -> str:
    return f"encoder.stages.{int(match[1]) - 1}"


_SNUNET: tuple[Rule, ...] = (
    (r"conv(\d)_0\.(conv|bn)(\d)", lambda m: f"encoder.{m[1]}.{_RESNET[m[2]]}{m[3]}"),
    (r"conv(\d)_(\d)\.(conv|bn)(\d)", lambda m: f"nodes.{m[1]}_{m[2]}.{_RESNET[m[3]]}{m[4]}"),
    (r"Up(\d)_(\d)\.up\.", r"ups.\1_\2."),
    (r"ca\.fc1\.", "between.mlp.0."),
    (r"ca\.fc2\.", "between.mlp.2."),
    (r"ca1\.fc1\.", "within.mlp.0."),
    (r"ca1\.fc2\.", "within.mlp.2."),
    (r"conv_final\.", "head."),
)

_LAYERS = {"1": 2, "2": 2, "3": 3, "4": 3}
"""Convolutions of each level of an FC, which numbers its decoder's from the last to the first."""
_FC: tuple[Rule, ...] = (
    (r"upconv(\d)\.", lambda m: f"decoder.ups.{int(m[1]) - 1}."),
    (r"conv11d\.", "decoder.head."),
    (
        r"(conv|bn)(\d)(\d)d\.",
        lambda m: f"decoder.levels.{_unit(m, _LAYERS[m[2]] - int(m[3]))}",
    ),
    (r"(conv|bn)(\d)(\d)\.", lambda m: f"encoder.levels.{_unit(m, int(m[3]) - 1)}"),
)


def _unit(match: re.Match[str], position: int) -> str:
    return f"{int(match[2]) - 1}.{4 * position + (match[1] == 'bn')}."


_VSS: tuple[tuple[str, str], ...] = (
    (r"norm\.", "norm1."),
    (r"op\.x_proj_weight", "scan.project"),
    (r"op\.dt_projs_weight", "scan.step"),
    (r"op\.dt_projs_bias", "scan.step_bias"),
    (r"op\.A_logs", "scan.log_rate"),
    (r"op\.Ds", "scan.skip"),
    (r"op\.out_norm\.", "scan_norm."),
    (r"op\.in_proj\.", "widen."),
    (r"op\.conv2d\.", "filter."),
    (r"op\.out_proj\.", "narrow."),
    (r"norm2\.", "norm2."),
    (r"mlp\.fc1\.", "mlp.0."),
    (r"mlp\.fc2\.", "mlp.2."),
)


def _rs_block(ours: str) -> Callable[[re.Match[str]], str]:
    return lambda m: f"encoder.stages.{int(m[1]) - 1}.{m[2]}.{ours}"


_CHANGEMAMBA: tuple[Rule, ...] = (
    (r"encoder\.patch_embed\.(\d)\.", lambda m: f"encoder.patches.{_PATCHES[m[1]]}."),
    (
        r"encoder\.layers\.(\d)\.downsample\.([13])\.",
        lambda m: f"encoder.downs.{m[1]}.{int(m[2]) // 2}.",
    ),
    (r"encoder\.outnorm(\d)\.", r"encoder.norms.\1."),
    *(
        (rf"encoder\.layers\.(\d)\.blocks\.(\d)\.{theirs}", rf"encoder.stages.\1.\2.{ours}")
        for theirs, ours in _VSS
    ),
    *(
        (rf"decoder\.stage_blocks\.(\d)\.{way}\.2\.{theirs}", rf"relate.\1.{name}.1.{ours}")
        for way, name in _WAYS.items()
        for theirs, ours in _VSS
    ),
    *(
        (rf"decoder\.stage_blocks\.(\d)\.{way}\.0\.", rf"relate.\1.{name}.0.")
        for way, name in _WAYS.items()
    ),
    (r"decoder\.fuse_layers\.(\d)\.", r"relate.\1.fuse."),
    (r"decoder\.smooth_layers\.(\d)\.(conv|bn)", lambda m: f"smooth.{m[1]}.{_RESNET[m[2]]}"),
    (r"main_clf\.", "head."),
)

_RS_MAMBA: tuple[Rule, ...] = (
    (r"patch_embed\.(\d)\.", lambda m: f"encoder.patches.{_PATCHES[m[1]]}."),
    (
        r"encoder_block(\d)\.downsample\.([13])\.",
        lambda m: f"encoder.downs.{int(m[1]) - 2}.{int(m[2]) // 2}.",
    ),
    *((rf"encoder_block(\d)\.blocks\.(\d)\.{theirs}", _rs_block(ours)) for theirs, ours in _VSS),
    (r"fuse_block(\d)\.fuse\.", lambda m: f"fuse.{int(m[1]) - 1}."),
    (r"deocder_block(\d)\.fuse\.", lambda m: f"join.{int(m[1]) - 1}."),
    (r"upsample_x4\.(\d)\.", lambda m: f"detail.{int(m[1]) // 4}.{int(m[1]) % 4}."),
    (r"conv_out_change\.", "head."),
)


RULES: dict[str, tuple[Rule, ...]] = {
    "tinycd": _TINYCD,
    "bit": _BIT,
    "changeformer": _CHANGEFORMER,
    "snunet": _SNUNET,
    "changemamba": _CHANGEMAMBA,
    "rs-mamba": _RS_MAMBA,
    "fc-ef": _FC,
    "fc-siam-conc": _FC,
    "fc-siam-diff": _FC,
}
"""The peers whose authors' checkpoints can be read."""

_WAYS_OF = {"changemamba": 4, "rs-mamba": 8}
_IDLE = {"bit": re.compile(r"resnet\.(layer4|fc)\.")}
"""Tensors that the authors' model has and never uses."""
_WRAPPERS = ("model_G_state_dict", "state_dict", "model", "net")
"""What the authors' programs call the tensors, beside the optimiser's and their scores."""


def load_released(peer: str, path: Path) -> Peer:
    """Read a checkpoint of a peer's authors as our model.

    Args:
        peer: One of `RULES`.
        path: A file of `torch.save` that holds the tensors; no code of it is run.

    Raises:
        ConfigError: No checkpoints of this peer are known.
        WeightsError: The file cannot be read, or does not hold this peer.
    """
    if peer not in RULES:
        raise ConfigError(
            f"checkpoints of {peer!r} cannot be converted; known are those of {', '.join(RULES)}."
        )
    model = build_peer(peer)
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
        raise WeightsError(f"{path} holds {min(unknown)}, which {peer} has no place for.")
    model.load_state_dict(tensors)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    model.ancestors = ({"model": path.name, "digest": f"sha256:{digest}"},)
    return model.eval()


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


def _rename(peer: str, name: str) -> str:
    for pattern, new in RULES[peer]:
        if match := re.match(pattern, name):
            return (match.expand(new) if isinstance(new, str) else new(match)) + name[match.end() :]
    raise WeightsError(f"{name} is no tensor of {peer} as its authors release it.")


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
