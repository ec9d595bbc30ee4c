"""What a model's name stands for: a bundled model, a checkpoint folder or file, or a hub id.

`find_checkpoint` finds the file or says what is wrong with the name, and `read_settings` reads what
the file says of itself. Neither imports torch, so a wrong name is refused at once.
"""

from __future__ import annotations

import hashlib
import json
import os
from os import PathLike
from pathlib import Path
from typing import Any

from adadino.bundled import bundled
from adadino.config import PRESETS
from adadino.errors import WeightsError
from adadino.files import read_json
from adadino.hub import fetch, is_hub_id
from adadino.peers import FREE, PEERS

FORMAT = 1
WEIGHTS, SETTINGS = "model.safetensors", "config.json"


def find_checkpoint(source: str | PathLike[str]) -> Path:
    """The safetensors file of a checkpoint; one on the hub is fetched.

    Raises:
        WeightsError: There is none; the message says what the name stands for instead.
    """
    path = Path(source)
    # os.path, because pathlib raises for names that are too long for a path.
    if os.path.isdir(path):  # noqa: PTH112
        path = path / WEIGHTS
    if _is_file(path):
        _refuse_others(path)
        return path
    name = str(source)
    if (own := bundled(name)) is not None:
        return own / WEIGHTS
    if name in FREE:
        raise WeightsError(
            f"{name} needs no training and has no checkpoint: predict and evaluate take it by its "
            "name; here take a trained model."
        )
    if name in PRESETS:
        raise WeightsError(
            f"{name} is a preset without trained weights; train it (adadino train --preset {name}),"
            " give a checkpoint folder, or take the bundled model, tiny."
        )
    if name in PEERS:
        raise WeightsError(
            f"{name} is a peer without trained weights; train it first (adadino train --model "
            f"{name} --data DIR) and give the run's checkpoint folder."
        )
    if is_hub_id(name):
        return fetch(name) / WEIGHTS
    for inside in ("best", "final"):  # a run's folder
        if _is_file(Path(source) / inside / WEIGHTS):
            raise WeightsError(
                f"{source} is a training run, not a checkpoint; take {Path(source) / inside}."
            )
    raise WeightsError(
        f"there is no checkpoint {source}: expected a folder with {WEIGHTS}. Check the path, "
        "or take the bundled model, tiny."
    )


def short_name(source: str | PathLike[str]) -> str:
    """What people call a model: tiny, someone/model, or the end of its path: run/best, mine."""
    path = Path(source)
    if not os.path.exists(path):  # noqa: PTH110, pathlib raises for names that are too long
        return str(source)
    if path.name == WEIGHTS:
        path = path.parent
    path = path.resolve()
    return "/".join(path.parts[-2:]) if path.name in ("best", "final") else path.name


def _refuse_others(path: Path) -> None:
    """Refuse files that are no checkpoints, by their endings."""
    if path.suffix == ".ckpt":  # what training resumes from
        raise WeightsError(
            f"{path} is a training run's state, not a checkpoint; take {path.parent / 'best'}."
        )
    if path.suffix.lower() in (".onnx", ".pt2"):
        raise WeightsError(
            f"{path} is an exported model, and a checkpoint folder is needed here: give the one"
            " it was exported from. Exported .onnx files are for adadino predict and serve."
        )


def read_settings(source: str | PathLike[str]) -> dict[str, Any]:
    """What a checkpoint says about itself, without its tensors.

    Raises:
        WeightsError: It is missing, broken, or not one of ours.
    """
    if is_free(source):
        return {"format": FORMAT, "model": {"peer": str(source)}}
    path = find_checkpoint(source)
    settings = _settings(path)
    if not isinstance(settings, dict) or "model" not in settings:
        raise WeightsError(
            f"{path} is not an adadino checkpoint: it holds no configuration. Backbone weights are "
            "given with backbone=, not as the model."
        )
    if settings.get("format") != FORMAT:
        raise WeightsError(
            f"{path} has checkpoint format {settings.get('format')!r}, this version reads "
            f"{FORMAT}; update adadino."
        )
    beside = path.parent / SETTINGS
    if not beside.is_file():
        return settings
    card = read_json(beside)
    if card.get("model") != settings["model"]:
        raise WeightsError(
            f"{beside} and the configuration inside {path.name} differ; delete config.json to use "
            "the one the weights were saved with."
        )
    return {**card, **settings}  # what was added to the card later counts, too


def is_free(source: str | PathLike[str]) -> bool:
    """Whether a name is that of a peer without training; a folder of that name comes first."""
    return str(source) in FREE and not os.path.exists(source)  # noqa: PTH110, as above


def _settings(path: Path) -> Any:
    """The configuration in a safetensors file's metadata; None if there is none."""
    from safetensors import safe_open

    try:
        with safe_open(path, framework="np") as file:
            text = (file.metadata() or {}).get("adadino", "")
        return json.loads(text) if text else None
    except Exception as error:  # safetensors' and JSON's own
        if _is_torch_file(path):
            raise WeightsError(
                f"{path} is a file of torch.save, not an adadino checkpoint, which is a folder "
                f"with {WEIGHTS}. If a peer's authors released it, adadino convert makes a "
                "checkpoint of it; backbone weights are given with backbone=."
            ) from error
        raise WeightsError(f"cannot read {path}: {error}. Copy or download it again.") from error


def _is_torch_file(path: Path) -> bool:
    """Whether a file begins as torch.save's do: with a zip archive, or with a bare pickle."""
    if not _is_file(path):
        return False
    with path.open("rb") as file:
        return file.read(4).startswith((b"PK\x03\x04", b"\x80\x02"))


def _is_file(path: Path) -> bool:
    return os.path.isfile(path)  # noqa: PTH113, pathlib raises for names that are too long


def temperature(settings: dict[str, Any], path: Path) -> float:
    """What a checkpoint's log-odds are divided by; 1 for one that was not calibrated.

    Raises:
        WeightsError: It is no number from 0.01 to 100.
    """
    said = settings.get("calibration", {"temperature": 1.0})
    value = said.get("temperature") if isinstance(said, dict) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.01 <= value <= 100:
        raise WeightsError(
            f"{path} has the calibration {said!r}; a temperature is a number from 0.01 to 100. "
            "Calibrate the model again."
        )
    return float(value)


def ancestors(settings: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    """The trained models that a checkpoint's training started from, the oldest first."""
    said = settings.get("ancestors")
    return tuple(one for one in said if isinstance(one, dict)) if isinstance(said, list) else ()


def lineage(source: str | PathLike[str]) -> tuple[dict[str, Any], ...]:
    """The ancestors of a model that is trained from `source`: its own, and itself.

    Each has its name as it was given, the digest of its file, and the epoch and scores it was saved
    with, where its checkpoint says so.
    """
    path, said = find_checkpoint(source), read_settings(source)
    with path.open("rb") as file:
        digest = f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()[:16]}"
    known = {name: said[name] for name in ("epoch", "validation") if name in said}
    return (*ancestors(said), {"model": str(source), "digest": digest, **known})
