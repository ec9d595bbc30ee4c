"""The model card of a run: what it is, what it was trained on, and how it scored, as measured."""

from __future__ import annotations

from typing import Any

from adadino.model.adadino import AdaDINO
from adadino.model.detector import Detector
from adadino.peers import PEERS
from adadino.training.config import RunConfig, TrainConfig


def model_card(
    model: Detector,
    history: list[dict[str, float]],
    environment: dict[str, Any],
    config: RunConfig,
) -> str:
    """Write the card as Markdown."""
    best = max(history, key=lambda row: row["f1"])
    title = "AdaDINO" if model.config.peer is None else PEERS[model.config.peer].title
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    data = "\n".join(
        f"| {split} | {d['pairs']} | {d['tiles']} | `{d['fingerprint']}` |"
        for split, d in environment["data"].items()
    )
    versions = ", ".join(f"{k} {v}" for k, v in environment["versions"].items())
    names = ("f1", "iou", "precision", "recall", "oa", "kappa")
    scores = " | ".join(f"{100 * best[name]:.2f}" for name in names)
    return f"""# {title}{"" if model.dino is None else f" on {model.config.backbone.name}"}

Finds what changed between two co-registered images of one place: a probability for each pixel.

{_parts(model)}- Trained parameters: {trained:,}.
- Recipe: {config.train.epochs} epochs, {config.train.pairs_per_update} pairs per update \
({_update(config.train)}), {config.train.optimizer} with learning rate {config.train.lr:g}, \
precision {config.train.precision}, seed {config.train.seed}.

## Scores

Validation split, one confusion matrix over all pixels, batches of {config.train.batch}, \
threshold 0.5, epoch {best["epoch"]:.0f} of {history[-1]["epoch"]:.0f} (the best of them, chosen \
on this very split).

| F1 | IoU | precision | recall | OA | kappa |
|---|---|---|---|---|---|
| {scores} |

## Data

| split | pairs | tiles | fingerprint |
|---|---|---|---|
{data}

{versions}

## Limits

It finds the kinds of change it was shown, at the resolution it was shown. Other sensors, seasons
and places need their own check before anyone acts on a map.
"""


def _update(train: TrainConfig) -> str:
    """How the pairs of an update come together."""
    devices = train.devices * train.nodes
    on = "" if devices == 1 else f" on each of {devices} devices"
    return f"{train.batch} at a time{on}, {train.accumulate} times"


def _parts(model: Detector) -> str:
    """What only some models have: a backbone, a choice of FFN chunks, a published original."""
    lines = []
    config, backbone = model.config, model.config.backbone
    if config.peer is not None:
        spec = PEERS[config.peer]
        lines.append(f"{spec.description} After {spec.citation}.")
    if model.dino is not None:
        weights = backbone.weights or ("trained with the model" if backbone.trainable else "random")
        lines.append(
            f"Backbone: {backbone.name}, weights: {weights} (`{backbone.fingerprint}`). "
            "DINOv3 weights keep their own licence."
        )
    if config.stream.weights is not None:
        lines.append(f"EfficientNet-lite0 began with: {config.stream.weights}.")
    if isinstance(model, AdaDINO):
        bscs = config.bscs
        lines.append(
            f"FFN chunks executed: {bscs.k} of {bscs.chunks} (selection {bscs.selection})."
        )
    return "".join(f"- {line}\n" for line in lines)
