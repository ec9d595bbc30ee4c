"""A frozen probe: how much change a backbone's features show, before anything is trained on them.

Ridge regression in closed form from the dates' difference to the share of changed pixels of each
token; every second pair fits, the others are scored. Seconds instead of a training run.

The difference is |silu(W F1) - silu(W F2)| of all four taps under a fixed random W, which is what
the decoder's neck can make of them. |F1 - F2| of the bare channels shows a change only where the
backbone happens to keep one meaning in one channel: it fell while the features got better.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from adadino.data.folder import PairFolder
from adadino.errors import DataError
from adadino.model.adadino import AdaDINO
from adadino.training.pretrain.distill import Student

DIRECTIONS = 2048
BATCH = 16
"""Pairs per step."""
RIDGE = 1e-2
"""Regularisation, relative to the mean variance of a feature."""


@torch.inference_mode()
def probe(model: AdaDINO, student: Student, pairs: PairFolder) -> float:
    """Average precision of change per token, over the pairs that did not fit the probe.

    Args:
        model: The model that prepares the images.
        student: The backbone and its taps.
        pairs: Labelled pairs of one size; training pairs, never those a model is scored on.

    Raises:
        DataError: There are too few pairs, or they do not divide into tokens.
    """
    check_pairs(pairs, model.config.stride)
    device, dim = student.mask_token.device, model.config.backbone.dim
    generator = torch.Generator().manual_seed(0)
    shape = len(student.taps) * dim, DIRECTIONS
    directions = (torch.randn(shape, generator=generator) / dim**0.5).to(device)
    wide = DIRECTIONS + 1
    gram = torch.zeros(wide, wide, dtype=torch.float64, device=device)
    moment = torch.zeros(wide, dtype=torch.float64, device=device)
    for x, y in _tokens(model, student, directions, pairs, range(0, len(pairs), 2)):
        gram += (x.T @ x).double()
        moment += (x.T @ y).double()
    penalty = RIDGE * gram.diagonal().mean()
    weight = torch.linalg.solve(gram + penalty * torch.eye(wide, device=device), moment).float()
    scored = [
        (x @ weight, y > 0.5)
        for x, y in _tokens(model, student, directions, pairs, range(1, len(pairs), 2))
    ]
    scores, truth = (torch.cat(parts) for parts in zip(*scored, strict=True))
    return average_precision(scores, truth)


def check_pairs(pairs: PairFolder, stride: int) -> None:
    """Refuse pairs that cannot be probed.

    Raises:
        DataError: There are too few, or they do not divide into tokens of this side.
    """
    if len(pairs) < 2:
        raise DataError(
            f"the probe has {len(pairs)} labelled pair, but fits on one and scores another: give 2 "
            "or more."
        )
    height, width = pairs.sizes[0]
    if height % stride or width % stride:
        raise DataError(
            f"the probe's pairs are {width} x {height}, which does not divide into tokens of "
            f"{stride} pixels; cut them with tile=."
        )


def average_precision(scores: Tensor, truth: Tensor) -> float:
    """Area under the precision-recall curve; 0 where nothing is true."""
    hits = truth[scores.argsort(descending=True)].double()
    precision = hits.cumsum(0) / torch.arange(1, len(hits) + 1, device=hits.device)
    return float((precision * hits).sum() / hits.sum().clamp_min(1))


def _tokens(
    model: AdaDINO,
    student: Student,
    directions: Tensor,
    pairs: PairFolder,
    indices: range,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Differences and a constant (n, DIRECTIONS + 1), changed shares (n,); a batch at a time."""
    device, patch = student.mask_token.device, model.config.stride
    for start in range(0, len(indices), BATCH):
        items = [pairs[i] for i in indices[start : start + BATCH]]
        before, after, mask = (
            torch.stack(part).to(device) for part in [*zip(*items, strict=True)][:3]
        )
        images = model.prepare(model.pad(torch.cat((before, after)).float() / 255))
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            taps = student.features(images)
        seen = F.silu(torch.cat([t.float() for t in taps], dim=-1) @ directions)
        first, second = seen.chunk(2)
        x = (first - second).abs().flatten(0, 1)
        share = F.avg_pool2d(mask.float()[:, None], patch).flatten()
        yield F.pad(x, (0, 1), value=1.0), share
