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
_CD_PARTS: tuple[Rule, ...] = (
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

_FFN = {"0": "norm", "1": "up", "3": "down"}
_ASKED = {"q": "query", "k": "key"}
_TITANS_PLACES: tuple[Rule, ...] = (
    (r"backbone\.pos_embed", "encoder.positions"),
    (r"backbone\.patch_embed\.projection\.", "encoder.patches."),
    (r"backbone\.layers\.", "encoder.blocks."),
    (r"backbone\.level_embed", "encoder.levels"),
    (r"backbone\.spm\.stem\.", "encoder.stem."),
    (r"backbone\.spm\.conv(\d)\.", lambda m: f"encoder.downs.{int(m[1]) - 2}."),
    (r"backbone\.spm\.fc(\d)\.", lambda m: f"encoder.project.{int(m[1]) - 1}."),
    (r"backbone\.interactions\.(\d)\.injector\.", r"encoder.injectors.\1."),
    (r"backbone\.interactions\.(\d)\.extractor\.", r"encoder.extractors.\1."),
    (
        r"backbone\.interactions\.\d\.extra_extractors\.(\d)\.",
        lambda m: f"encoder.extractors.{4 + int(m[1])}.",
    ),
    (r"backbone\.up\.", "encoder.up."),
    (r"backbone\.norm(\d)\.", lambda m: f"encoder.norms.{int(m[1]) - 1}."),
    (r"fusion_module\.(\d)\.layers\.(\d)\.", r"exchange.\1.\2."),
    (r"head\.decoder_block_(\d)\.0\.", lambda m: f"decode.{4 - int(m[1])}.reduce."),
    (r"head\.decoder_block_(\d)\.1\.layers\.", lambda m: f"decode.{4 - int(m[1])}.blocks."),
    (r"head\.decoder_block_(\d)\.2\.", lambda m: f"decode.{4 - int(m[1])}.norm."),
    (
        r"head\.smooth_layer_(\d)\.(conv|bn)",
        lambda m: f"smooth.{3 - int(m[1])}.{_RESNET[m[2]]}",
    ),
    (r"mask_gen\.", "neighbours."),
    (r"clf\.", "head."),
)
_TITANS_PARTS: tuple[Rule, ...] = (
    (r"(\d+)\.gamma_att", r"\1.attention_scale"),
    (r"(\d+)\.gamma_ffn", r"\1.ffn_scale"),
    (r"(\d+)\.gamma_mem", r"\1.memory_scale"),
    (r"(\d+)\.att\.persistent_memory", r"\1.attention.learned"),
    (r"(\d+)\.att\.to_(qkv)\.", r"\1.attention.\2."),
    (r"(\d+)\.att\.to_out\.", r"\1.attention.proj."),
    (r"(\d+)\.att\.to_learned_v_mix\.0\.", r"\1.attention.mix."),
    (r"(\d+)\.att\.", r"\1.attention."),
    (r"(\d+)\.ffn\.([013])\.", lambda m: f"{m[1]}.ffn.{_FFN[m[2]]}."),
    (r"(\d+)\.mem\.retrieve_norm\.", r"\1.memory.ask_norm."),
    (r"(\d+)\.mem\.([qk])_norm\.gamma", lambda m: f"{m[1]}.memory.{_ASKED[m[2]]}_gain"),
    (
        r"(\d+)\.mem\.memory_model_parameters\.(\d)",
        lambda m: f"{m[1]}.memory.{('gain', 'up', 'down')[int(m[2])]}",
    ),
    (r"(\d+)\.mem\.to_queries\.", r"\1.memory.query."),
    (r"(\d+)\.mem\.to_(key|value)s\.", r"\1.memory.\2."),
    (r"(\d+)\.mem\.reduce_to_chunk_rep\.to_attn_logits\.", r"\1.memory.pool."),
    (r"(\d+)\.mem\.to_adaptive_step\.0\.", r"\1.memory.rate."),
    (r"(\d+)\.mem\.to_layer_modulation\.0\.", r"\1.memory.modulate."),
    (r"(\d+)\.mem\.to_learned_weight_residual_mix\.0\.", r"\1.memory.mix."),
    (r"(\d+)\.mem\.to_decay_factor\.0\.", r"\1.memory.decay."),
    (r"(\d+)\.mem\.to_momentum\.0\.", r"\1.memory.momentum."),
    (r"(\d+)\.mem\.", r"\1.memory."),
    (r"query_norm\.", "norm1."),
    (r"feat_norm\.", "norm2."),
    (r"ffn_norm\.", "norm3."),
    (r"gamma$", "scale"),
    (r"attn\.sampling_offsets\.", "attention.offsets."),
    (r"attn\.attention_weights\.", "attention.weights."),
    (r"attn\.value_proj\.", "attention.value."),
    (r"attn\.output_proj\.", "attention.proj."),
    (r"ffn\.fc1\.", "up."),
    (r"ffn\.dwconv\.dwconv\.", "filter."),
    (r"ffn\.fc2\.", "down."),
    (r"conv1\.conv\.", "conv."),
    (r"conv2(\d)\.([01])\.conv\.", lambda m: f"channels.{int(m[1]) - 1}.{2 * int(m[2])}."),
    (r"conv3(\d)\.([01])\.conv\.", lambda m: f"places.{int(m[1]) - 1}.{2 * int(m[2])}."),
    (r"norm([12])\.", lambda m: f"norms.{int(m[1]) - 1}."),
)


def _in_parts(places: tuple[Rule, ...], parts: tuple[Rule, ...]) -> Rule:
    """One rule for a whole name: a place, and what the rest is called at such places."""

    def rename(match: re.Match[str]) -> str:
        name = match[0]
        for pattern, new in places:
            if place := re.match(pattern, name):
                rest = name[place.end() :]
                return _expand(place, new) + _first(rest, parts)
        return f"?{name}"  # no tensor of ours: the reader says so

    return (r".+", rename)


def _first(name: str, rules: tuple[Rule, ...]) -> str:
    for pattern, new in rules:
        if match := re.match(pattern, name):
            return _expand(match, new) + name[match.end() :]
    return name


def _expand(match: re.Match[str], new: str | Callable[[re.Match[str]], str]) -> str:
    return match.expand(new) if isinstance(new, str) else new(match)


RULES: dict[str, tuple[Rule, ...]] = {
    "tinycd": _TINYCD,
    "bit": _BIT,
    "changeformer": _CHANGEFORMER,
    "snunet": _SNUNET,
    "changemamba": _CHANGEMAMBA,
    "rs-mamba": _RS_MAMBA,
    "cdmamba": (_in_parts(_CD_PLACES, _CD_PARTS),),
    "changetitans": (_in_parts(_TITANS_PLACES, _TITANS_PARTS),),
    "fc-ef": _FC,
    "fc-siam-conc": _FC,
    "fc-siam-diff": _FC,
}
"""The peers whose authors' checkpoints can be read."""
