"""The comparators, one file each, with AdaDINO's signature.

A configuration names one with `peer`, and every command takes it from there. `registry.py` lists
them; `build_peer` makes one. Importing this package imports no model and no torch.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from adadino.config import Config, StreamConfig, preset
from adadino.errors import ConfigError
from adadino.peers.registry import FREE, PEERS, PeerSpec, find_peer

if TYPE_CHECKING:
    from adadino.model.backbone import Backbone
    from adadino.peers.base import Peer

__all__ = ["FREE", "PEERS", "PeerSpec", "build_peer", "find_peer", "takes"]


def build_peer(name: str, config: Config | None = None, backbone: Backbone | None = None) -> Peer:
    """Build a comparator with random weights.

    Args:
        name: One of `PEERS`.
        config: For the peers on the frozen backbone, whose backbone, decoder width and enlargement
            they take; the `tiny` preset if left out. The others have one size and need none.
        backbone: The frozen backbone with its weights; a random one if left out.

    Raises:
        ConfigError: There is no such peer, or it cannot take what it was given.
    """
    spec = find_peer(name)
    config = dataclasses.replace(preset("tiny") if config is None else config, peer=name)
    given: dict[str, Any] = {}
    if spec.backbone:
        given = {"config": config, "backbone": backbone}
    elif backbone is not None:
        raise ConfigError(f"{name} has no frozen backbone: leave it out.")
    peer = spec.builder(*spec.options, **given)
    if not spec.backbone:
        # It has one size: its configuration is its name and where its trunk started.
        peer.config = Config(peer=name, stream=StreamConfig(weights=config.stream.weights))
    return peer


def takes(peer: str, name: str) -> bool:
    """Whether a setting of the model, such as `bscs.k`, has an effect on a peer.

    Raises:
        ConfigError: There is no such peer.
    """
    spec = find_peer(peer)
    taken = ["peer"]
    if spec.backbone:
        taken += ["backbone", "cgla.depths", "scale"]
    if spec.backbone and spec.decoder:
        taken += ["cpgr.width", "cpgr.refiner"]
    if spec.trunk:
        taken += ["stream.weights"]
    return name in taken or name.partition(".")[0] in taken
