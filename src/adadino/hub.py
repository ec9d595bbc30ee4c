"""Models on the Hugging Face hub: a folder of trained tensors, settings and a card.

- The folder is a checkpoint (`model.safetensors`, `config.json`), so `adadino.load` takes it too. A
  frozen backbone is named there, with its digest, and not copied.
- The card holds the figures it is given and no others: what was not measured has no line.
- `from_pretrained` takes a folder, or a hub id. huggingface_hub keeps what it fetched, and with
  HF_HUB_OFFLINE=1 looks nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from adadino.errors import AdaDINOError, ConfigError
from adadino.files import write_atomic
from adadino.model.checkpoint import load, save
from adadino.model.weights import is_hub_id
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
        folder: Where to; made if it is not there.
        figures: Measured figures by data set: `{"LEVIR-CD test": {"f1": 0.91, "iou": 0.84}}`. The
            names are those that `adadino evaluate --json` prints.
        with_backbone: Carry the frozen backbone too; see its licence first.
        licence: Of the trained tensors, for the card; left out if not given.

    Raises:
        ConfigError: A figure has no name that the card knows, or is no number between -1 and 1.
    """
    card = model_card(model, figures=figures, with_backbone=with_backbone, licence=licence)
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
        repo_id: `owner/name`; made if it is not there.
        figures: Measured figures by data set.
        with_backbone: Carry the frozen backbone too.
        licence: Of the trained tensors.
        private: Whether a new repository is for its owner only.
        message: Of the commit.

    Returns:
        The address of the commit.

    Raises:
        AdaDINOError: huggingface_hub is not installed, or the hub refuses.
    """
    if not is_hub_id(repo_id):
        raise ConfigError(f"{repo_id!r} is no hub id; give owner/name.")
    try:
        from huggingface_hub import HfApi
    except ImportError as error:
        raise AdaDINOError(
            "the hub needs huggingface_hub, which is not installed: pip install 'adadino[hub]'"
        ) from error
    with TemporaryDirectory(prefix="adadino-") as folder:
        save_pretrained(
            model, folder, figures=figures, with_backbone=with_backbone, licence=licence
        )
        try:
            api = HfApi()
            api.create_repo(repo_id, private=private, exist_ok=True)
            commit = api.upload_folder(repo_id=repo_id, folder_path=folder, commit_message=message)
        except Exception as error:  # offline, not logged in, refused: each its own type
            reason = str(error).strip().splitlines()[0][:200] if str(error) else repr(error)
            raise AdaDINOError(
                f"cannot upload to {repo_id}: {reason}. Log in with `hf auth login` and see that "
                "you may write there."
            ) from error
    return str(commit)


def model_card(
    model: Detector,
    *,
    figures: Mapping[str, Mapping[str, float]] | None = None,
    with_backbone: bool = False,
    licence: str | None = None,
) -> str:
    """The README of a model, from its configuration and the figures that were measured."""
    named = model.config.backbone.weights
    return hub_card(
        model,
        figures=figures,
        with_backbone=with_backbone,
        licence=licence,
        base_model=named if is_hub_id(named) else None,
    )
