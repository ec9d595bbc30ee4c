"""From a configuration to a model: AdaDINO, or the peer that the configuration names.

This module stands above `model` and `peers`, so that neither needs to know the other's classes.
`checkpoint.py` fills what is built here with trained tensors.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from adadino.config import Config
from adadino.errors import ConfigError
from adadino.model.adadino import AdaDINO
from adadino.model.backbone import Backbone
from adadino.model.detector import Detector
from adadino.model.lite0 import Lite0, load_lite0
from adadino.model.weights import BackboneWeights, make_backbone, read_backbone
from adadino.peers import build_peer, find_peer
from adadino.peers.mobile_sam import MobileSAM, load_mobile_sam


def kind_of(config: Config) -> type[Detector]:
    """The class of a configuration's model: AdaDINO, or the peer it names.

    Raises:
        ConfigError: There is no such peer.
    """
    return AdaDINO if config.peer is None else find_peer(config.peer).builder


def new_model(config: Config, *, backbone: Backbone | None = None) -> Detector:
    """Make the model of a configuration; its backbone is random if none is given."""
    if config.peer is None:
        return AdaDINO(config, backbone=backbone)
    return build_peer(config.peer, config, backbone)


def build_on(config: Config, weights: BackboneWeights) -> Detector:
    """Make the model of a configuration on backbone weights that were read already."""
    config = dataclasses.replace(config, backbone=weights.config)
    return new_model(config, backbone=make_backbone(weights))


def build(config: Config, backbone: str | Path | None = None) -> Detector:
    """Make an untrained model on a pretrained backbone.

    Args:
        config: The model. Its normalisation is replaced by the weights' own.
        backbone: Weights file, folder or hub id; by default the one the configuration names. With
            neither, the backbone is random, which is good for tests only.
    """
    source = backbone if backbone is not None else config.backbone.weights
    if kind_of(config).backbone_path is None:
        if backbone is not None:
            raise ConfigError(f"{config.peer} has no frozen backbone: leave backbone= out.")
        source = None
    if source is None:
        model = new_model(config)
    else:
        model = build_on(config, read_backbone(source, config.backbone))
    if config.stream.weights is not None:
        _fill_trunk(model, config.stream.weights)
    return model


def _fill_trunk(model: Detector, start: str) -> None:
    """Give the convolutional trunk, or MobileSAM's encoder, the weights that a setting names."""
    for part in model.modules():
        if isinstance(part, Lite0):
            pretrained = load_lite0(None if start == "imagenet" else start, levels=part.levels)
            part.load_state_dict(pretrained.state_dict())
        elif isinstance(part, MobileSAM):
            part.load_state_dict(load_mobile_sam(start).state_dict())
