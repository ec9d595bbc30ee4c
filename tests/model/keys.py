"""The tensors of a checkpoint by name, spelled out: the format that files of others rely on."""

from __future__ import annotations

from adadino.config import Config

BN = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
AFFINE = ("weight", "bias")


def names(prefix: str, **parts: tuple[str, ...]) -> set[str]:
    return {f"{prefix}.{part.replace('__', '.')}.{n}" for part, all in parts.items() for n in all}


def policy(block: int) -> set[str]:
    return names(f"encoder.bscs.policies.{block}", fc1=AFFINE, fc2=AFFINE)


def adapter(depth: int) -> set[str]:
    prefix = f"encoder.cgla.{depth}"
    return {f"{prefix}.eta", f"{prefix}.gamma_delta", f"{prefix}.gamma_self"} | names(
        prefix,
        f_rel__0=("weight",),
        f_rel__1=AFFINE,
        f_ctx__0=("weight",),
        f_ctx__1=AFFINE,
        w_spatial=AFFINE,
        w_channel=AFFINE,
        f_delta__0=("weight",),
        f_delta__1=AFFINE,
        f_delta__3=("weight",),
        f_delta__4=AFFINE,
        f_delta__6=AFFINE,
        f_loc__0=("weight",),
        f_loc__2=AFFINE,
    )


def neck(level: int) -> set[str]:
    return names(
        f"neck.necks.{level}",
        reduce=("weight",),
        norm1=BN,
        local=("weight",),
        norm2=BN,
        widen=AFFINE,
    )


def decoder_block(prefix: str, *, channel_attention: bool) -> set[str]:
    conv = ("weight",)
    keys = names(prefix, **{"0__norm": AFFINE, "0__layer__qkv": conv, "0__layer__proj": conv})
    for ffn in (1, 3) if channel_attention else (1,):
        keys |= names(f"{prefix}.{ffn}", norm=AFFINE)
        keys |= names(f"{prefix}.{ffn}.layer", up=conv, local=conv, down=conv)
    if channel_attention:
        keys |= names(f"{prefix}.2", norm=AFFINE)
        keys |= names(f"{prefix}.2.layer", qkv=conv, local=conv, proj=conv)
        keys.add(f"{prefix}.2.layer.temperature")
    return keys


def stage(index: int) -> set[str]:
    prefix = f"decoder.stages.{index}"
    guidance = {f"{prefix}.guidance.alpha_pred", f"{prefix}.guidance.alpha_prior"} | names(
        f"{prefix}.guidance",
        f_pred__0=("weight",),
        f_pred__1=AFFINE,
        f_pred__3=("weight",),
        f_pred__4=AFFINE,
        f_pred__6=AFFINE,
        w_prior=AFFINE,
    )
    fusion = names(
        prefix, route=AFFINE, merge__0=("weight",), merge__1=BN, fuse__0=("weight",), fuse__1=BN
    )
    block = decoder_block(f"{prefix}.block", channel_attention=True)
    return guidance | fusion | block | names(prefix, head=AFFINE)


REFINER = {"refiner.blend", "refiner.log_tau"} | names(
    "refiner", opening=("dilation", "erosion"), closing=("dilation", "erosion")
)


def expected_keys(config: Config) -> set[str]:
    keys = decoder_block("decoder.block", channel_attention=False)
    keys |= names("decoder", head=AFFINE) | REFINER
    for block in range(config.backbone.depth):
        keys |= policy(block)
    for depth in config.depths:
        keys |= adapter(depth)
    for level in range(4):
        keys |= neck(level)
    for index in range(3):
        keys |= stage(index)
    return keys
