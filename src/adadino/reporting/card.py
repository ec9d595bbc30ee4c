"""Cards: what a model is, what it was trained on, and how it scored, as Markdown.

`run_card` stands in a training run's folder, `hub_card` is the README of a model on the hub. Both
hold the figures they are given and no others: what was not measured has no line.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import yaml

import adadino
from adadino.errors import ConfigError
from adadino.hub import is_hub_id
from adadino.reporting.tables import markdown_table

if TYPE_CHECKING:
    from adadino.model.detector import Detector
    from adadino.peers import PeerSpec

FIGURES = {
    "f1": "F1",
    "iou": "IoU",
    "precision": "precision",
    "recall": "recall",
    "oa": "overall accuracy",
    "kappa": "kappa",
}
"""The metrics of `adadino evaluate`, as cards name them."""
CLASS_FIGURES = {"miou": "mIoU", "sek": "SeK", "fscd": "F_scd"}
"""Those of a model that tells classes, whose best epoch the last one chooses."""

KEPT_LICENCE = "DINOv3 weights keep their own licence."
LIMITS = """It finds the kinds of change it was shown, at the resolution it was shown. Other \
sensors, seasons
and places need their own check before anyone acts on a map."""


def run_card(
    model: Detector,
    history: list[dict[str, float]],
    environment: dict[str, Any],
    *,
    recipe: str,
    batch: int,
    original: PeerSpec | None = None,
) -> str:
    """The card of a training run.

    Args:
        model: What was trained.
        history: A row for each validated epoch.
        environment: Versions, and the pairs, tiles and fingerprint of each split.
        recipe: How it was trained, in words.
        batch: Pairs that were scored together.
        original: The published model that a peer follows.
    """
    title = "AdaDINO" if original is None else original.title
    on = "" if model.dino is None else f" on {model.config.backbone.name}"
    versions = ", ".join(f"{name} {value}" for name, value in environment["versions"].items())
    splits = [
        [split, str(one["pairs"]), str(one["tiles"]), f"`{one['fingerprint']}`"]
        for split, one in environment["data"].items()
    ]
    parts = [
        f"# {title}{on}",
        "Finds what changed between two co-registered images of one place: a probability for each "
        "pixel.",
        "\n".join(f"- {line}" for line in (*_parts(model, original), f"Recipe: {recipe}.")),
        "## Scores",
        *_scores(history, batch),
        "## Data",
        "\n".join(markdown_table(["split", "pairs", "tiles", "fingerprint"], splits)),
        _range(model),
        versions,
        "## Limits",
        LIMITS,
    ]
    return "\n\n".join(parts) + "\n"


def _range(model: Detector) -> str:
    """What the images were like, as `predict` compares it with a scene."""
    domain = model.domain
    if domain is None or domain.resolution is None:
        return (
            "Ground resolution: not known, so `adadino predict` refuses no scene. Train with "
            "data.resolution to say it."
        )
    return (
        f"Ground resolution: {domain.text}. `adadino predict` warns outside of it, and refuses a "
        "scene more than four times outside."
    )


def _scores(history: list[dict[str, float]], batch: int) -> list[str]:
    if "f1" not in history[-1]:
        epochs = f"{history[-1]['epoch']:.0f}"
        return [f"None: trained for {epochs} epochs without validation, so nothing chose an epoch."]
    figures = [*FIGURES, *(name for name in CLASS_FIGURES if name in history[-1])]
    best = max(history, key=lambda row: row.get("fscd", row["f1"]))
    names = ["F1", "IoU", "precision", "recall", "OA", "kappa", *CLASS_FIGURES.values()]
    return [
        f"Validation split, one confusion matrix over all pixels, batches of {batch}, threshold "
        f"0.5, epoch {best['epoch']:.0f} of {history[-1]['epoch']:.0f} (the best of them, chosen "
        "on this very split).",
        "\n".join(
            markdown_table(names[: len(figures)], [[f"{100 * best[n]:.2f}" for n in figures]])
        ),
    ]


def _parts(model: Detector, original: PeerSpec | None) -> list[str]:
    """What only some models have (an original, a backbone, FFN chunks), and their size."""
    lines = []
    config, backbone = model.config, model.config.backbone
    if original is not None:
        lines.append(f"{original.description} After {original.citation}.")
    if model.dino is not None:
        weights = backbone.weights or ("trained with the model" if backbone.trainable else "random")
        theirs = "DINOv2's are Meta's, Apache-2.0." if backbone.grid else KEPT_LICENCE
        lines.append(
            f"Backbone: {backbone.name}, weights: {weights} (`{backbone.fingerprint}`). {theirs}"
        )
    if config.bands.names:
        lines.append(f"Takes {_bands(model)}.")
    if model.ancestors:
        parents = ", then ".join(f"{one['model']} (`{one['digest']}`)" for one in model.ancestors)
        lines.append(f"Started from a trained model: {parents}.")
    if config.stream.weights is not None:
        sam = original is not None and original.trunk == "mobile-sam"
        trunk = "MobileSAM's encoder" if sam else "EfficientNet-lite0"
        lines.append(f"{trunk} began with: {config.stream.weights}.")
    if original is None:
        bscs = config.bscs
        lines.append(
            f"FFN chunks executed: {bscs.k} of {bscs.chunks} (selection {bscs.selection})."
        )
    if config.classes.names:
        lines.append(f"Tells what changed into what: {', '.join(config.classes.names)}.")
    return [*lines, f"Trained parameters: {_trained(model):,}."]


def _bands(model: Detector) -> str:
    """The bands of a model that takes others than red, green and blue, and their scaling."""
    bands, factor = model.config.bands, model.config.enlarge
    spans = zip(bands.bands, *bands.limits, strict=True)
    said = ", ".join(f"{band.name} ({low:g} to {high:g})" for band, low, high in spans)
    return f"the bands {said}" + (f", enlarged {factor} times" if factor != 1 else "")


def hub_card(
    model: Detector,
    *,
    figures: Mapping[str, Mapping[str, float]] | None = None,
    with_backbone: bool = False,
    licence: str | None = None,
) -> str:
    """The README of a model on the hub, from its configuration and the figures it is given.

    Args:
        model: The model.
        figures: Measured figures by data set: `{"LEVIR-CD test": {"f1": 0.91, "iou": 0.84}}`.
        with_backbone: Whether the frozen backbone is in the repository too.
        licence: Of the trained tensors; left out if not given.

    Raises:
        ConfigError: A figure has no name that the card knows, or is no number between -1 and 1.
    """
    config, carried = model.config, with_backbone or model.owns_backbone
    head: dict[str, Any] = {
        "library_name": "adadino",
        "tags": ["change-detection", "remote-sensing", "image-segmentation"],
    }
    if licence is not None:
        head["license"] = licence
    if model.dino is not None and not carried and is_hub_id(config.backbone.weights):
        head["base_model"] = config.backbone.weights
    front = yaml.safe_dump(head, sort_keys=False).strip()
    parts = [
        f"---\n{front}\n---",
        f"# {config.peer or f'AdaDINO on {config.backbone.name}'}",
        f"Finds what changed between two co-registered images of one place: {_takes(model)} in, "
        "the probability of change of every pixel out.",
        '```python\nimport adadino\nmodel = adadino.load("OWNER/NAME")  # or this folder\n'
        "probability = model.predict(before, after)\n```",
        "## Facts\n\n" + "\n".join(f"- {line}" for line in _facts(model, carried=carried)),
    ]
    if figures:
        parts.append("## Figures\n\n" + _figures(figures))
    return "\n\n".join(parts) + "\n"


def _takes(model: Detector) -> str:
    return model.config.bands.text if model.config.bands.names else "RGB"


def _facts(model: Detector, *, carried: bool) -> list[str]:
    config = model.config
    lines = [f"adadino {adadino.__version__}", f"trained parameters: {_trained(model):,}"]
    if model.dino is not None:
        backbone = config.backbone
        where = "in this repository" if carried else f"not here: `{backbone.weights or 'unnamed'}`"
        digest = f" ({backbone.fingerprint})" if backbone.fingerprint else ""
        lines.append(f"backbone: {backbone.name}, {where}{digest}")
    if model.config.bands.names:
        lines.append(f"takes {_bands(model)}")
    if (bscs := model.bscs) is not None:
        lines.append(f"FFN chunks executed: {bscs.k} of {bscs.chunks}")
    mean, std = (", ".join(map(str, v)) for v in model.normalize.values.values())
    return [*lines, f"normalisation, inside the model: mean {mean}; std {std}"]


def _figures(figures: Mapping[str, Mapping[str, float]]) -> str:
    """Figures in per cent; a column for each that was given, a blank for each that was not."""
    for data, row in figures.items():
        for name, value in row.items():
            if name not in FIGURES:
                known = ", ".join(FIGURES)
                raise ConfigError(f"{data} has a figure {name!r}; the card knows {known}.")
            if not -1 <= value <= 1:
                raise ConfigError(f"{name} of {data} is {value}, must be a share between -1 and 1.")
    columns = [name for name in FIGURES if any(name in row for row in figures.values())]
    rows = [
        [data, *(f"{100 * row[name]:.2f}" if name in row else "" for name in columns)]
        for data, row in figures.items()
    ]
    lines = markdown_table(["data", *(FIGURES[name] for name in columns)], rows)
    return "\n".join([*lines, "", "In per cent, as measured with `adadino evaluate`."])


def _trained(model: Detector) -> int:
    return sum(p.numel() for p in model.parameters() if p.requires_grad)
