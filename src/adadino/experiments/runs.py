"""Which run a row is: its recipe, and a folder named by what it learns."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from adadino import schema
from adadino.build import kind_of
from adadino.experiments.table import Row
from adadino.training.config import RunConfig, load_run

QUICK = (
    "preset=tiny",
    "train.epochs=2",  # one with all chunks, one that chooses
    "train.validate_every=1",
    "train.precision=32",
    "train.cuda_graph=false",
    "train.accumulate=1",
    "train.dice=foreground",
    "train.bscs_warmup=1",
    "train.lambda_start=0",
    "train.lambda_ramp=1",
    "train.batch=4",
    "train.lr=3e-3",
    "augment.size=64",
    "data.tile=64",
    "data.workers=0",
    "data.cache=true",
)
"""The whole machinery on the synthetic world in minutes; the figures mean nothing."""


@dataclass(frozen=True)
class Setting:
    """Where the data, the weights and the results are."""

    out: Path
    data: Path | None = None
    """Folder that holds sysu-cd/, whu-cd/, levir-cd/, levir-cd-plus/, as `prepare` made them."""
    backbone: str | None = None
    seeds: tuple[int, ...] = (0,)
    quick: bool = False
    device: str = "auto"
    overrides: tuple[str, ...] = ()
    """Changes to the recipe, of every row."""
    jobs: int = 1
    """Models that are trained at the same time: small ones do not fill a GPU."""


def run_config(row: Row, seed: int, setting: Setting, *, ranking: str | None = None) -> RunConfig:
    """The recipe of one row: the paper's, the row's overrides, the user's."""
    folder = setting.out / "data" if setting.quick else setting.data
    overrides = [
        f"preset={row.study.preset}",
        *row.study.recipe,
        *(QUICK if setting.quick else ()),
        f"train.seed={seed}",
        *row.overrides,
        *setting.overrides,
    ]
    if setting.quick and any(item.startswith("model.stream.weights=") for item in overrides):
        overrides.append("model.stream.weights=null")  # like the backbone, random
    if ranking is not None:
        overrides.append(f"model.bscs.ranking={ranking}")
    config = load_run(None, overrides)
    if setting.backbone is not None and kind_of(config.model).backbone_path:
        backbone = dataclasses.replace(config.model.backbone, weights=setting.backbone)
        model = dataclasses.replace(config.model, backbone=backbone)
        config = dataclasses.replace(config, model=model)
    place = setting.out / "runs" / row.dataset.replace(",", "+") / f"{_digest(config)}-seed{seed}"
    root = tuple(f"{folder}/{name}" for name in row.dataset.split(","))
    data = dataclasses.replace(config.data, root=root)
    return dataclasses.replace(config, data=data, output=str(place))


def _digest(config: RunConfig) -> str:
    """Name a run by what it learns, not by where things lie or how they are read."""
    identity = schema.to_dict(config)
    identity.pop("output")
    for name in ("root", "workers", "cache"):
        identity["data"].pop(name)
    for part in ("backbone", "stream"):
        identity["model"][part]["weights"] = _content(identity["model"][part]["weights"])
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:10]


@functools.cache
def _content(weights: str | None) -> str | None:
    """The digest of a file of weights; a folder or an id of the hub goes by its name."""
    if weights is None or not Path(weights).is_file():
        return weights
    with Path(weights).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
