"""Cut the FFNs down to fixed chunks: no policy, no gather, a smaller file.

The mask of a frozen model no longer follows the batch. Its chunks are the ones that the
configuration fixes, or those that the policy scores best over sample pairs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from adadino.errors import ConfigError
from adadino.model.adadino import AdaDINO
from adadino.model.backbone import Block, FeedForward
from adadino.model.bscs import top_chunks_by_block

Pairs = Sequence[tuple[Tensor, Tensor]]


def choose_chunks(model: AdaDINO, k: int, samples: Pairs = ()) -> Tensor | None:
    """The chunks (blocks, k) to keep; None keeps all.

    Args:
        model: The model.
        k: How many to keep in each block.
        samples: Pairs (1, 3, H, W) to let the policy see, if it is the policy that chooses.

    Raises:
        ConfigError: The policy chooses, and there is neither a ranking nor a sample.
    """
    bscs = model.bscs
    if k == bscs.chunks or bscs.selection == "off":
        return None
    if samples and bscs.selection == "learned":
        with torch.inference_mode():
            seen = [model(before, after, k=k).scores for before, after in samples]
        scores = torch.cat([score for score in seen if score is not None])  # (pairs, blocks, C)
        return top_chunks_by_block(scores, k).clone()
    fixed = model.encoder.bscs.fixed
    if fixed is None and bscs.ranking is not None:
        fixed = torch.tensor(bscs.ranking)
    if fixed is None:
        raise ConfigError(
            "selection=static fixes the chunks for good, and this model's policy chooses them by "
            "what it sees: give pairs to choose from (--samples DIR, with folders A and B), or use "
            "selection=batch."
        )
    return fixed[:, :k].sort(dim=1).values


def freeze_chunks(model: AdaDINO, chunks: Tensor) -> int:
    """Keep only the given chunks of every FFN, in place; returns the k that runs all of them."""
    config = model.config
    size = config.backbone.ffn // config.bscs.chunks
    for block, keep in zip(model.encoder.backbone.blocks, chunks, strict=True):
        assert isinstance(block, Block)
        _keep(block.ffn, (keep[:, None] * size + torch.arange(size)).flatten())
    k = chunks.shape[1]
    bscs = dataclasses.replace(config.bscs, selection="off", chunks=k, k=k, ranking=None)
    model.encoder.bscs.config = bscs
    model.encoder.bscs.policies = nn.ModuleList()
    model.config = dataclasses.replace(
        config, bscs=bscs, backbone=dataclasses.replace(config.backbone, ffn=k * size)
    )
    return k


def _keep(ffn: FeedForward, hidden: Tensor) -> None:
    for linear in (ffn.up, ffn.gate):
        if linear is not None:
            linear.weight = _frozen(linear.weight[hidden])
            linear.bias = _frozen(linear.bias[hidden])
    ffn.down.weight = _frozen(ffn.down.weight[:, hidden])


def _frozen(tensor: Tensor) -> nn.Parameter:
    return nn.Parameter(tensor.detach().clone(), requires_grad=False)
