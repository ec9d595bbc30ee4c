"""What the authors of the peers call their tensors, and what we call them.

A rule is a pattern over the beginning of an author's name and what it becomes; the first that
matches counts. `released.py` applies them.
"""

from __future__ import annotations

import re
from collections.abc import Callable

Rule = tuple[str, str | Callable[[re.Match[str]], str]]

_CONV_ACT = ("conv", "act")
_RESNET = {"conv": "conv", "bn": "norm", "downsample.": "shortcut."}
_MIT = {
    "attn.q": "attention.query", "attn.kv": "attention.key_value", "attn.proj": "attention.proj",
    "attn.sr": "attention.shrink", "attn.norm": "attention.norm", "mlp.fc1": "ffn.up",
    "mlp.fc2": "ffn.down", "mlp.dwconv.dwconv": "ffn.local",
}  # fmt: skip
_CD_BLOCK = {"norm": "norm", "conv": "layer"}
_CD_GATE = {"l": "near", "g": "far"}
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


_CD_PLACES: tuple[Rule, ...] = (
    (r"convInit\.conv\.", "stem."),
    (r"conv_final\.0\.", "head.0."),
    (r"conv_final\.2\.conv\.", "head.2."),
    (r"srcm_encoder_layers\.(\d)\.0\.0\.", lambda m: f"downs.{int(m[1]) - 1}."),
    (
        r"srcm_encoder_layers\.(\d)\.(\d)\.(norm|conv)(\d)\.",
        lambda m: f"stages.{m[1]}.{int(m[2]) - 1}.{_CD_BLOCK[m[3]]}{m[4]}.",
    ),
    (
        r"srcm_decoder_layers\.(\d)\.0\.(norm|conv)(\d)\.",
        lambda m: f"levels.{2 - int(m[1])}.{_CD_BLOCK[m[2]]}{m[3]}.",
    ),
    (r"up_samples\.(\d)\.0\.conv\.", lambda m: f"ups.{2 - int(m[1])}."),
    (r"ag([12])\.gate\.", lambda m: f"exchange.{int(m[1]) - 1}.score."),
    (
        r"([lg])_gf([12])\.norm([12])\.",
        lambda m: f"exchange.{int(m[2]) - 1}.{_CD_GATE[m[1]]}.norms.{int(m[3]) - 1}.",
    ),
    (
        r"([lg])_gf([12])\.fusionencoder\.",
        lambda m: f"exchange.{int(m[2]) - 1}.{_CD_GATE[m[1]]}.",
    ),
)
_CD_PARTS: tuple[tuple[str, str], ...] = (
    (r"(convmamba\.)?in_proj_global\.", "widen_other."),
    (r"(convmamba\.)?in_proj\.", "widen."),
    (r"(convmamba\.)?out_proj\.", "narrow."),
    *(
        (rf"(convmamba\.)?{theirs}", f"{way}.{ours}")
        for mark, way in (("_b", "backwards"), ("_g", "other"), ("", "forwards"))
        for theirs, ours in (
            (rf"conv1d{mark}\.", "filter."),
            (rf"x_proj{mark}\.", "project."),
            (rf"dt_proj{mark}\.", "step."),
            (rf"A{mark}_log", "log_rate"),
            (rf"D{mark}$", "skip"),
        )
    ),
    (r"(convmamba\.)?l\w+_relation\.(\d)\.depthwise_conv\.", r"local.\2.0."),
    (r"(convmamba\.)?l\w+_relation\.(\d)\.pointwise_conv\.", r"local.\2.1."),
    (r"(convmamba\.)?l\w+_relation\.(\d)\.", r"local.\2."),
    (r"proj\.", "project."),
    (r"skip_scale", "keep"),
)


def _cdmamba(match: re.Match[str]) -> str:
    """A CDMamba's place, and the part of it."""
    name = match[0]
    for pattern, new in _CD_PLACES:
        if place := re.match(pattern, name):
            head = place.expand(new) if isinstance(new, str) else new(place)
            rest = name[place.end() :]
            for theirs, ours in _CD_PARTS:
                if part := re.match(theirs, rest):
                    return head + part.expand(ours) + rest[part.end() :]
            return head + rest
    return f"?{name}"  # no tensor of ours: the reader says so


RULES: dict[str, tuple[Rule, ...]] = {
    "tinycd": _TINYCD,
    "bit": _BIT,
    "changeformer": _CHANGEFORMER,
    "snunet": _SNUNET,
    "changemamba": _CHANGEMAMBA,
    "rs-mamba": _RS_MAMBA,
    "cdmamba": ((r".+", _cdmamba),),
    "fc-ef": _FC,
    "fc-siam-conc": _FC,
    "fc-siam-diff": _FC,
}
"""The peers whose authors' checkpoints can be read."""
