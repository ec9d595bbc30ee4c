"""A run's folder: whose it is, where to go on, and what its figures depend on."""

from __future__ import annotations

import functools
import json
import platform
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

import adadino
from adadino import schema
from adadino.data.folder import PairFolder, fingerprint
from adadino.data.staging import remove
from adadino.errors import ConfigError, ExtendedWarning, TrainingError
from adadino.files import sweep, write_atomic
from adadino.training.config import RunConfig, differences

LAST, BEST, FINAL = "last.ckpt", "best", "final"
CONFIG, ENVIRONMENT = "config.yaml", "environment.json"
HISTORY, CURVES, PICTURES, CARD = "history.csv", "curves.png", "pictures", "card.md"

# In the order of removal: the checkpoint first and the configuration last, so that a removal that
# is cut short leaves no mix of two runs.
_WRITTEN = (
    LAST, BEST, FINAL, HISTORY, CURVES, PICTURES, CARD, "tensorboard", ENVIRONMENT, CONFIG,
)  # fmt: skip

# What a run writes only after its first epoch.
_RESULTS = tuple(name for name in _WRITTEN if name not in ("tensorboard", ENVIRONMENT, CONFIG))

# What may differ between a run's start and its continuation: where it runs, not what it learns.
_FREE = {
    "output", "data.root", "data.workers", "data.cache", "data.resolution", "train.wandb",
    "train.strategy",
    "train.devices", "train.nodes", "train.accumulate",  # `same_update` checks these three
}  # fmt: skip


def open_run(folder: Path, config: RunConfig, *, overwrite: bool) -> Path | None:
    """Make a folder ready for a run; return the checkpoint to go on from, None for a new run.

    Call it while holding the folder's lock: settings without results may be those of a run that has
    just begun elsewhere.

    Raises:
        TrainingError: The folder holds a run with other settings, or something else.
    """
    saved = folder / CONFIG
    before = _saved(saved) if saved.exists() else None  # raises before anything is touched
    if before is None and not overwrite and (found := _in_the_way(folder)):
        raise TrainingError(
            f"{folder} holds {found}, but no {CONFIG} that says what it was trained with. Restore "
            "that file, give another output, or --overwrite."
        )
    if before is not None:
        _clear_up(folder)
    if abandoned(folder, RunConfig, _RESULTS):
        remove(folder / "tensorboard")
        before = None  # the settings are replaced, never missing: a second process may read them
    if overwrite and (before is not None or _in_the_way(folder)):
        for name in _WRITTEN:
            remove(folder / name)
        before = None
    if before is None:
        write_atomic(saved, schema.write_yaml(config))
        return checkpoint_of(folder)
    then, now = schema.to_dict(before), schema.to_dict(config)
    longer = config.train.epochs > before.train.epochs and checkpoint_of(folder) is not None
    for name in differences(then, now):
        if name not in _FREE and not (longer and name == "train.epochs"):
            raise TrainingError(
                f"{folder} holds a run with another {name} ({_value(then, name)!r}, not "
                f"{_value(now, name)!r}); give another output, or --overwrite."
            )
    if longer:
        _extend(saved, before, config.train.epochs)
    return checkpoint_of(folder)


def _extend(saved: Path, before: RunConfig, epochs: int) -> None:
    """Let a run go on beyond its last epoch, and say what that does to its schedule."""
    longer = replace(before, train=replace(before.train, epochs=epochs))
    write_atomic(saved, schema.write_yaml(longer))
    warnings.warn(
        f"the run is extended from {before.train.epochs} to {epochs} epochs. The learning rate "
        "goes on where the longer schedule stands, so the result is not that of a run that was "
        "meant to be as long; for the figures of such a run, train one in another folder.",
        ExtendedWarning,
        stacklevel=3,
    )


def abandoned(folder: Path, kind: type, results: Sequence[str]) -> bool:
    """Whether a folder holds a run's settings and no result, so that another run may take it.

    A command that fails before its first checkpoint leaves such a folder. A settings file that does
    not name every setting, as ours do, is the user's own and is never written over.

    Args:
        folder: The run's folder.
        kind: The dataclass of its settings.
        results: Names of the results, none of which may exist.
    """
    try:
        said = schema.read_yaml(folder / CONFIG)
        ours: Any = schema.build(kind, said)
    except ConfigError:
        return False
    # 0.1.0 did not name the settings that were added since.
    whole = _names(schema.identity(ours), said) and _names(said, schema.to_dict(ours))
    return whole and not any((folder / name).exists() for name in results)


def _names(part: Mapping[str, Any], whole: Mapping[str, Any]) -> bool:
    """Whether every setting of one mapping is in the other, with the same value."""
    return all(
        key in whole
        and (_names(value, whole[key]) if isinstance(value, Mapping) else whole[key] == value)
        for key, value in part.items()
    )


def can_go_on(folder: Path) -> bool:
    """Whether a folder holds a training run that has results already."""
    return (folder / CONFIG).exists() and not abandoned(folder, RunConfig, _RESULTS)


def _in_the_way(folder: Path) -> str | None:
    """A name in the folder that a run would write, if there is one."""
    return next((name for name in _WRITTEN if (folder / name).exists()), None)


def _clear_up(folder: Path) -> None:
    """Remove the half-written files of killed processes."""
    for name in (LAST, HISTORY, CURVES, CARD, ENVIRONMENT, CONFIG):
        sweep(folder / name)
    for name in (BEST, FINAL, PICTURES):
        for half_written in (folder / name).glob(".*.part*"):
            half_written.unlink()


def _saved(path: Path) -> RunConfig:
    """The settings that a run's folder was made with."""
    try:
        return schema.build(RunConfig, schema.read_yaml(path))
    except ConfigError as error:
        raise TrainingError(
            f"{path} is not of a training run ({error}); give another output."
        ) from error


def same_update(folder: Path, config: RunConfig) -> RunConfig:
    """Let a run that goes on with another number of devices see as many pairs per update.

    The steps it accumulates make up for the devices. Chunks are chosen per device and step, so the
    batch of a device stays what it is. A new run is left as it is.

    Raises:
        TrainingError: No number of accumulated steps gives the same.
    """
    if not can_go_on(folder):
        return config
    before = _saved(folder / CONFIG).train
    now = config.train
    then, here = before.devices * before.nodes, now.devices * now.nodes
    if then == here or before.batch != now.batch:
        # The same devices: what is given counts. Another batch is refused with other settings.
        if before.accumulate != now.accumulate:
            raise TrainingError(
                f"{folder} holds a run with another train.accumulate ({before.accumulate}, not "
                f"{now.accumulate}); give another output, or --overwrite."
            )
        return config
    pairs = before.pairs_per_update
    steps, rest = divmod(pairs, now.batch * here)
    if rest or now.accumulate not in (before.accumulate, steps):
        good = [n for n in range(1, pairs + 1) if pairs % (now.batch * n) == 0]
        raise TrainingError(
            f"{folder} holds a run with {pairs} pairs per update, which {here} devices with "
            f"train.batch={now.batch} and train.accumulate={now.accumulate} do not make; go on "
            f"with {', '.join(map(str, good))} devices in all and leave train.accumulate as it is, "
            "give another output, or --overwrite."
        )
    return replace(config, train=replace(now, accumulate=steps))


def checkpoint_of(folder: Path) -> Path | None:
    """The checkpoint to go on from, if there is one."""
    return folder / LAST if (folder / LAST).exists() else None


def read_state(path: Path | str) -> dict[str, Any]:
    """Read what a run goes on from: tensors and plain values only, so no code of the file is run.

    Raises:
        TrainingError: The file is damaged.
    """
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever zip, pickle and torch think of a damaged file
        raise TrainingError(
            f"cannot read {path}: {type(error).__name__}. Restore it, or start the run anew with "
            "--overwrite."
        ) from error
    return state


def record_environment(folder: Path, sets: dict[str, PairFolder]) -> None:
    """Write down what a figure of this run depends on besides the configuration.

    Raises:
        TrainingError: The run was begun on other data.
    """
    data = {
        split: {
            "pairs": len(pairs.pairs),
            "tiles": len(pairs),
            "fingerprint": fingerprint(pairs.pairs),
        }
        for split, pairs in sets.items()
    }
    path = folder / ENVIRONMENT
    if checkpoint_of(folder) and path.exists():
        before = json.loads(path.read_text(encoding="utf-8"))["data"]
        for split in data:
            if before[split] != data[split]:
                raise TrainingError(
                    f"the {split} split is not the one this run was begun on "
                    f"({data[split]['fingerprint']}, not {before[split]['fingerprint']}); restore "
                    "it, give another output, or --overwrite."
                )
    versions = {
        "adadino": adadino.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "pytorch-lightning": version("pytorch-lightning"),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU",
    }
    write_atomic(path, json.dumps({"versions": versions, "data": data}, indent=2) + "\n")


def _value(settings: Any, name: str) -> Any:
    return functools.reduce(lambda group, key: group[key], name.split("."), settings)
