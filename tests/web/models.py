"""A checkpoint that runs in milliseconds and finds some change, at some thresholds more."""

from __future__ import annotations

from pathlib import Path

import torch

from adadino import checkpoint
from adadino.data.synthetic import DEMO_SEED, DEMO_SIZE, HELD_OUT, make_pair
from adadino.model.adadino import AdaDINO
from tests.conftest import SMALL, randomise, with_bscs


def small_checkpoint(folder: Path) -> Path:
    """A random model whose answers are spread over all probabilities."""
    torch.manual_seed(0)
    # Dense: which chunks a random policy takes depends on the scene, and with them the answers.
    model = randomise(AdaDINO(with_bscs(SMALL, k=SMALL.bscs.chunks)), 0.35).eval()
    pair = make_pair(DEMO_SEED, DEMO_SIZE, HELD_OUT)
    before, after = (
        torch.from_numpy(image.copy()).permute(2, 0, 1)[None] / 255
        for image in (pair.before, pair.after)
    )
    with torch.inference_mode():
        logits = model(before, after).logits
        odds = (logits[:, 1] - logits[:, 0])[:, 64:-64, 64:-64]  # borders are wilder
    head = model.decoder.stages[-1].head
    with torch.no_grad():
        stretch = 1.5 / odds.std()
        head.weight *= stretch
        head.bias *= stretch
        head.bias[1] -= stretch * odds.mean() + 1.0
    return checkpoint.save(model, folder, with_backbone=True)
