"""Models as folders for the Hugging Face hub: trained tensors, settings and a card.

- The folder is a checkpoint (`model.safetensors`, `config.json`), so every command takes it too. A
  frozen backbone is named there, with its digest, and not copied.
- The card holds the figures it is given and no others: what was not measured has no line.
- `from_pretrained` takes a folder or a hub id, and is `adadino.load` under the name people know.

AdaDINO and its peers alike. What talks to the hub is `hub.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import yaml

import adadino
from adadino.checkpoint import load, save
from adadino.errors import ConfigError
from adadino.files import write_atomic
from adadino.hub import is_hub_id, upload

if TYPE_CHECKING:
    import torch

    from adadino.model.detector import Detector

CARD = "README.md"
FIGURES = {
    "f1": "F1",
    "iou": "IoU",
    "precision": "precision",
    "recall": "recall",
    "oa": "overall accuracy",
    "kappa": "kappa",
}
"""The metrics of `adadino evaluate`, as the card names them."""


def save_pretrained(
    model: Detector,
    folder: str | PathLike[str],
    *,
    figures: Mapping[str, Mapping[str, float]] | None = None,
    with_backbone: bool = False,
    licence: str | None = None,
) -> Path:
    """Write a model as a folder for the hub.

    Args:
        model: The model.
        folder: The folder, which is made if it does not exist.
        figures: Measured figures by data set: `{"LEVIR-CD test": {"f1": 0.91, "iou": 0.84}}`. The
            names are those that `adadino evaluate --json` prints.
        with_backbone: Carry the frozen backbone too; see its licence first. A model that was
            loaded with its backbone inside, as the bundled one, carries it anyway.
        licence: Licence of the trained tensors, for the card; left out if not given.

    Raises:
        ConfigError: A figure has no name that the card knows, or is no number between -1 and 1.
    """
    card = hub_card(model, figures=figures, with_backbone=with_backbone, licence=licence)
    path = save(model, folder, with_backbone=with_backbone)
    write_atomic(path / CARD, card)
    return path


def from_pretrained(
    source: str | PathLike[str],
    *,
    backbone: str | PathLike[str] | None = None,
    device: str | torch.device = "cpu",
) -> Detector:
    """Load a model from a folder or by its hub id; see `adadino.load`."""
    return load(source, backbone=backbone, device=device)


def push_to_hub(
    model: Detector,
    repo_id: str,
    *,
    figures: Mapping[str, Mapping[str, float]] | None = None,
    with_backbone: bool = False,
    licence: str | None = None,
    private: bool = False,
    message: str = "Upload an adadino model",
) -> str:
    """Upload a model, as `save_pretrained` writes it.

    Args:
        model: The model.
        repo_id: `owner/name`, which is made if it does not exist.
        figures: Measured figures by data set.
        with_backbone: Carry the frozen backbone too.
        licence: Licence of the trained tensors.
        private: Whether a new repository is for its owner only.
        message: Message of the commit.

    Returns:
        The address of the commit.

    Raises:
        AdaDINOError: huggingface_hub is not installed, or the hub refuses.
    """
    if not is_hub_id(repo_id):
        raise ConfigError(f"{repo_id!r} is no hub id; give owner/name.")
    with TemporaryDirectory(prefix="adadino-") as folder:
        save_pretrained(
            model, folder, figures=figures, with_backbone=with_backbone, licence=licence
        )
        return upload(Path(folder), repo_id, private=private, message=message)


def hub_card(
    model: Detector,
    *,
    figures: Mapping[str, Mapping[str, float]] | None = None,
    with_backbone: bool = False,
    licence: str | None = None,
) -> str:
    """The README of a model, from its configuration and the figures that were measured."""
    config, carried = model.config, with_backbone or model.owns_backbone
    head: dict[str, Any] = {
        "library_name": "adadino",
        "tags": ["change-detection", "remote-sensing", "image-segmentation"],
    }
    named = config.backbone.weights
    if licence is not None:
        head["license"] = licence
    if model.dino is not None and not carried and is_hub_id(named):
        head["base_model"] = named
    front = yaml.safe_dump(head, sort_keys=False).strip()
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    title = config.peer or f"AdaDINO on {config.backbone.name}"
    parts = [
        f"---\n{front}\n---",
        f"# {title}",
        "Finds what changed between two co-registered images of one place: RGB in, the probability "
        "of change of every pixel out.",
        '```python\nimport adadino\nmodel = adadino.load("OWNER/NAME")  # or this folder\n'
        "probability = model.predict(before, after)\n```",
        "## Facts\n\n" + "\n".join(_facts(model, trained, carried=carried)),
    ]
    if figures:
        parts.append("## Figures\n\n" + _table(figures))
    return "\n\n".join(parts) + "\n"


def _facts(model: Detector, trained: int, *, carried: bool) -> list[str]:
    config = model.config
    lines = [f"- adadino {adadino.__version__}", f"- trained parameters: {trained:,}"]
    if model.dino is not None:
        backbone = config.backbone
        where = "in this repository" if carried else f"not here: `{backbone.weights or 'unnamed'}`"
        digest = f" ({backbone.fingerprint})" if backbone.fingerprint else ""
        lines.append(f"- backbone: {backbone.name}, {where}{digest}")
    if (bscs := model.bscs) is not None:
        lines.append(f"- FFN chunks executed: {bscs.k} of {bscs.chunks}")
    mean, std = (", ".join(map(str, v)) for v in model.normalize.values.values())
    return [*lines, f"- normalisation, inside the model: mean {mean}; std {std}"]


def _table(figures: Mapping[str, Mapping[str, float]]) -> str:
    """Figures in per cent; a column for each that was given, a blank for each that was not."""
    for data, row in figures.items():
        for name, value in row.items():
            if name not in FIGURES:
                known = ", ".join(FIGURES)
                raise ConfigError(f"{data} has a figure {name!r}; the card knows {known}.")
            if not -1 <= value <= 1:
                raise ConfigError(f"{name} of {data} is {value}, must be a share between -1 and 1.")
    columns = [name for name in FIGURES if any(name in row for row in figures.values())]
    lines = ["| data | " + " | ".join(FIGURES[name] for name in columns) + " |"]
    lines.append("|---" * (len(columns) + 1) + "|")
    for data, row in figures.items():
        cells = (f"{100 * row[name]:.2f}" if name in row else "" for name in columns)
        lines.append(f"| {data} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", "In per cent, as measured with `adadino evaluate`."])
