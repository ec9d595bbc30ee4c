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
from typing import TYPE_CHECKING

from adadino.checkpoint import load, save
from adadino.errors import ConfigError
from adadino.files import write_atomic
from adadino.hub import is_hub_id, upload
from adadino.reporting.card import hub_card

if TYPE_CHECKING:
    import torch

    from adadino.model.detector import Detector

CARD = "README.md"


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
