"""Our checkpoints: `save` writes a folder, `load` makes the model of one again, each checked.

A checkpoint holds the trained tensors, beside a config.json that names the backbone. The
configuration is also in the safetensors file's own metadata: one file is enough, and a config.json
of another model is noticed. A frozen backbone is not copied. It is named, with a digest, and found
again when the checkpoint is loaded. Only a model whose backbone is its own carries it: a backbone
that was trained, or that came with the checkpoint the model was loaded from, as the bundled model's
does. A peer's checkpoint is the same, and its configuration names the peer.
"""

from __future__ import annotations

import dataclasses
import json
import warnings
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from adadino import schema
from adadino.build import build_on, kind_of, new_model
from adadino.config import Config
from adadino.domain import Domain
from adadino.errors import ConfigError, NormalizationWarning, WeightsError
from adadino.files import atomic
from adadino.model.detector import Detector
from adadino.model.tensor_files import read_tensors
from adadino.model.weights import (
    BackboneWeights,
    check_backbone,
    fingerprint,
    read_backbone,
)
from adadino.peers import PEERS, build_peer
from adadino.source import (
    FORMAT,
    SETTINGS,
    WEIGHTS,
    ancestors,
    find_checkpoint,
    is_free,
    read_settings,
    temperature,
)


def trained_tensors(model: Detector, *, with_backbone: bool = False) -> dict[str, Tensor]:
    """The tensors a checkpoint holds: all of them, or all but those of a frozen backbone."""
    own = with_backbone or model.owns_backbone
    prefix = _prefix(type(model))
    return {
        name: tensor
        for name, tensor in model.state_dict().items()
        if own or not name.startswith(prefix)
    }


def save(
    model: Detector,
    folder: str | PathLike[str],
    *,
    with_backbone: bool = False,
    dtype: torch.dtype | None = None,
    extra: dict[str, Any] | None = None,
) -> Path:
    """Write a checkpoint folder, whole or not at all.

    Args:
        model: The model.
        folder: The folder, which is made if it does not exist.
        with_backbone: Carry the frozen backbone too, for a model that must run on its own. A model
            that was loaded with its backbone inside carries it anyway.
        dtype: Store floating-point tensors in this type.
        extra: Other values for config.json (scores, data, licence).

    Returns:
        The folder.

    Raises:
        WeightsError: A tensor holds NaN or infinity, or would in the type asked for; or the model
            is not the one its configuration names, and would be loaded as another.
        AdaDINOError: The folder cannot be written; what was there before is untouched.
    """
    from safetensors.torch import save as serialise

    folder = Path(folder)
    if not isinstance(model, kind_of(model.config)):
        raise _cannot_save(model)
    tensors: dict[str, Tensor] = {}
    for name, tensor in trained_tensors(model, with_backbone=with_backbone).items():
        kind = dtype if dtype is not None and tensor.is_floating_point() else tensor.dtype
        tensors[name] = tensor.detach().to(device="cpu", dtype=kind).contiguous()
        if not bool(tensors[name].isfinite().all()):
            raise WeightsError(
                f"{name} holds NaN or infinity as {kind}; nothing was saved. Take a wider "
                "dtype, or an earlier checkpoint."
            )
    said = {**(extra or {}), "format": FORMAT, "model": schema.to_dict(model.config)}
    if model.ancestors:
        said["ancestors"] = list(model.ancestors)
    if model.domain is not None:
        said.setdefault("domain", model.domain.as_card())
    if model.temperature != 1.0:
        said["calibration"] = {**said.get("calibration", {}), "temperature": model.temperature}
    # Both files are complete before either takes its place: they must agree.
    with atomic(folder / SETTINGS) as settings, atomic(folder / WEIGHTS) as weights:
        settings.write_text(json.dumps(said, indent=2) + "\n", encoding="utf-8")
        # Not save_file: that leaves the file readable by its owner alone.
        weights.write_bytes(serialise(tensors, metadata={"adadino": json.dumps(said)}))
    return folder


def _cannot_save(model: Detector) -> WeightsError:
    kind = type(model).__name__
    if any(isinstance(model, spec.builder) for spec in PEERS.values()):
        return WeightsError(
            f"a {kind} that does not come from build_peer cannot be saved; make it with "
            "adadino.peers.build_peer."
        )
    # An engine: its weights are folded, rounded and laid out for one device.
    return WeightsError(f"{kind} holds a model's weights changed; save the model it was made from.")


def load(
    source: str | PathLike[str] = "tiny",
    *,
    backbone: str | PathLike[str] | None = None,
    device: str | torch.device = "cpu",
) -> Detector:
    """Load a trained model, ready to predict.

    Args:
        source: A bundled model's name, a checkpoint folder or file, a hub id, or the name of a
            peer that needs no training: cva, irmad.
        backbone: The frozen backbone's weights, if they are not where the checkpoint says; not for
            a checkpoint that carries its own, or a peer without one.
        device: Where the model should live.

    Returns:
        An `AdaDINO`, or the peer that the checkpoint names.

    Raises:
        WeightsError: The checkpoint or its backbone is missing, broken or of another model.
    """
    if is_free(source):
        if backbone is not None:
            raise WeightsError(f"{source} has no backbone; leave backbone= out.")
        return build_peer(str(source)).to(device).eval()
    path = find_checkpoint(source)
    settings, tensors = read_settings(path), read_tensors(path)
    try:
        config = schema.build(Config, settings["model"], "model")
        kind = kind_of(config)
    except ConfigError as error:
        raise WeightsError(f"{path}: {error}") from error
    weights, carried = None, any(name.startswith(_prefix(kind)) for name in tensors)
    if kind.backbone_path is not None:
        weights = _backbone_weights(config, kind, tensors, backbone, path)
    elif backbone is not None:
        raise WeightsError(f"{path} is {config.peer}, without backbone; leave backbone= out.")
    _check_fit(config, tensors, path)
    model = new_model(config) if weights is None else build_on(config, weights)
    model.load_state_dict(_compare(model, tensors, path), strict=False)
    model.came_with_backbone = carried
    model.ancestors = ancestors(settings)
    model.domain = Domain.of_card(settings, path)
    model.temperature = temperature(settings, path)
    return model.to(device).eval()


def _prefix(kind: type[Detector]) -> str | tuple[str, ...]:
    """The prefix of the backbone's tensors; an empty tuple, which no name begins with, if none."""
    return () if kind.backbone_path is None else f"{kind.backbone_path}."


def _backbone_weights(
    config: Config,
    kind: type[Detector],
    tensors: dict[str, Tensor],
    backbone: str | PathLike[str] | None,
    path: Path,
) -> BackboneWeights:
    """The backbone a checkpoint carries, or else the one it names."""
    prefix = f"{kind.backbone_path}."
    own = {
        name.removeprefix(prefix): tensor.float()
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }
    if not own:
        return _named_backbone(config, backbone, path)
    if backbone is not None:
        raise WeightsError(f"{path} carries its own backbone; leave backbone= out.")
    check_backbone(own, config.backbone, path)
    return BackboneWeights(own, "adadino", config.backbone)


def _named_backbone(
    config: Config, backbone: str | PathLike[str] | None, path: Path
) -> BackboneWeights:
    """The frozen backbone a checkpoint was trained on, normalised as it was trained."""
    source = backbone if backbone is not None else config.backbone.weights
    if source is None:
        # Trained on a random backbone, as in tests: no file has it.
        raise WeightsError(
            f"{path} does not carry its backbone and names none; give backbone=FILE with the "
            f"{config.backbone.name} weights it was trained on."
        )
    try:
        with warnings.catch_warnings():
            # The checkpoint holds the normalisation, so the backbone's file need not.
            warnings.simplefilter("ignore", NormalizationWarning)
            weights = read_backbone(str(source), config.backbone)
    except WeightsError as error:
        raise WeightsError(f"{path} needs its backbone: {error} Or give backbone=FILE.") from error
    expected, found = config.backbone.fingerprint, fingerprint(weights.tensors)
    if expected is not None and expected != found:
        raise WeightsError(
            f"{path} was trained on backbone weights {expected} ({config.backbone.weights}), but "
            f"{source} has {found}: give the same weights."
        )
    mean, std = config.backbone.mean, config.backbone.std
    return weights._replace(config=dataclasses.replace(weights.config, mean=mean, std=std))


def _check_fit(config: Config, tensors: dict[str, Tensor], path: Path) -> None:
    """Compare names and shapes before anything is allocated: a false configuration may be huge."""
    with torch.device("meta"):
        model = new_model(config)
    _compare(model, tensors, path)


def _compare(model: Detector, tensors: dict[str, Tensor], path: Path) -> dict[str, Tensor]:
    """The tensors for a model, after checking that they are exactly the ones it needs."""
    wanted, prefix = trained_tensors(model), _prefix(type(model))
    given = {n: t for n, t in tensors.items() if n in wanted or not n.startswith(prefix)}
    for name in [*wanted, *given]:
        if name not in given:
            raise WeightsError(f"{path} lacks {name}; it is incomplete: copy or download it again.")
        if name not in wanted:
            raise WeightsError(
                f"{path} holds {name}, which its own configuration has no place for; take the "
                "file as it was saved."
            )
        if given[name].shape != wanted[name].shape:
            raise WeightsError(
                f"{path}: {name} is {tuple(given[name].shape)}, the configuration needs "
                f"{tuple(wanted[name].shape)}."
            )
        if not bool(given[name].float().isfinite().all()):
            raise WeightsError(f"{path}: {name} holds NaN or infinity.")
    return given
