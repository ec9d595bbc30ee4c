"""What a row is run with: data, weights, its recipe, and a folder named by what it learns."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from pathlib import Path

from adadino import schema
from adadino.build import kind_of
from adadino.bundled import bundled
from adadino.data.prepare.benchmarks import BENCHMARKS
from adadino.data.synthetic import write_dataset
from adadino.errors import DataError
from adadino.experiments.setting import Setting
from adadino.experiments.table import RANDOM, Row, Table
from adadino.files import write_atomic
from adadino.hub import is_hub_id
from adadino.peers import find_peer
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


def run_config(
    row: Row,
    seed: int,
    setting: Setting,
    *,
    ranking: str | None = None,
    teacher: str | None = None,
    backbone: str | None = None,
) -> RunConfig:
    """The recipe of one row: the paper's, the row's overrides, the user's.

    Args:
        row: The row.
        seed: Seed of the run.
        setting: Where data, weights and results are.
        ranking: The order of the chunks, if the row has a fixed one; from `needs.prepared`.
        teacher: The checkpoint that teaches, if one does; likewise.
        backbone: The weights instead of the setting's; likewise.
    """
    folder = setting.out / "data" if setting.quick else setting.data
    overrides = [
        f"preset={row.study.preset}",
        *row.study.recipe,
        *((*QUICK, *row.study.quick) if setting.quick else ()),
        f"train.seed={seed}",
        *row.overrides,
        *([f"model.bscs.seed={seed}"] if RANDOM in row.overrides else ()),
        *setting.overrides,
    ]
    if setting.sam is not None and on_sam(row):
        overrides.append(f"model.stream.weights={setting.sam}")
    if setting.quick and any(item.startswith("model.stream.weights=") for item in overrides):
        overrides.append("model.stream.weights=null")  # like the backbone, random
    if ranking is not None:
        overrides.append(f"model.bscs.ranking={ranking}")
    if teacher is not None:
        overrides.append(f"train.teacher={teacher}")
    config = load_run(None, overrides)
    weights = backbone or setting.backbone
    if weights is not None and kind_of(config.model).backbone_path:
        named = dataclasses.replace(config.model.backbone, weights=weights)
        model = dataclasses.replace(config.model, backbone=named)
        config = dataclasses.replace(config, model=model)
    place = setting.out / "runs" / row.dataset.replace(",", "+") / f"{digest_of(config)}-seed{seed}"
    root = tuple(f"{folder}/{name}" for name in row.dataset.split(","))
    data = dataclasses.replace(config.data, root=root)
    return dataclasses.replace(config, data=data, output=str(place))


def digest_of(config: RunConfig) -> str:
    """Name a run by what it learns, not by where things lie or how they are read."""
    identity = schema.identity(config)
    identity.pop("output")
    for name in ("root", "workers", "cache", "resolution"):
        identity["data"].pop(name, None)
    for part in ("backbone", "stream"):
        identity["model"][part]["weights"] = content_of(identity["model"][part]["weights"])
    if config.train.teacher is not None:  # a run of the same table, by its own name
        identity["train"]["teacher"] = Path(config.train.teacher).parent.name
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:10]


@functools.cache
def content_of(weights: str | None) -> str | None:
    """The digest of a file of weights; a folder or an id of the hub goes by its name."""
    if weights is None or not Path(weights).is_file():
        return weights
    with Path(weights).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_stand_in(out: Path, dataset: str) -> None:
    """Write a small synthetic stand-in for a benchmark, once."""
    root, done = out / "data" / dataset, out / "data" / dataset / "done"
    if not done.exists():
        seed = int(hashlib.sha256(dataset.encode()).hexdigest()[:4], 16)
        write_dataset(root, {"train": 12, "val": 4, "test": 4}, seed=seed, size=64)
        write_atomic(done, "")


def datasets(table: Table) -> list[str]:
    """The datasets that a table's rows are trained on."""
    return sorted({name for row in table.rows for name in row.dataset.split(",")})


def check_inputs(table: Table, setting: Setting) -> None:
    """Refuse to begin a table whose data or weights are not there.

    Raises:
        DataError: Something is missing; the message lists all of it.
    """
    if setting.quick:
        return
    missing = []
    study = table.rows[0].study
    for dataset in datasets(table):
        for split in ("train", "val") if study.split == "val" else ("train", "val", "test"):
            folder = (setting.data or Path("DATA")) / dataset
            if setting.data is None or not (folder / split).is_dir():
                missing.append(f"{folder / split} ({_how_to_get(dataset, folder)})")
                break
    if setting.backbone is None:
        missing.append(
            "the ViT-L/16 SAT-493M weights (--backbone FILE; docs/how-to/weights.md)"
            if study.preset == "vitl16"
            else f"the {study.preset} weights (--backbone FILE; docs/how-to/weights.md)"
            if study.preset.startswith("dinov2")
            else f"the {study.preset} backbone (--backbone tiny is the bundled model's; or a FILE)"
        )
    elif not (Path(setting.backbone).exists() or bundled(setting.backbone)) and not is_hub_id(
        setting.backbone
    ):
        missing.append(f"{setting.backbone}, which --backbone names (there is no such file)")
    if any(on_sam(row) for row in table.rows):
        if setting.sam is None:
            missing.append("MobileSAM's weights (--sam FILE; docs/how-to/weights.md)")
        elif not Path(setting.sam).is_file():
            missing.append(f"{setting.sam}, which --sam names (there is no such file)")
    if missing:
        listed = "; ".join(missing)
        raise DataError(
            f"{table.name} needs: {listed}. Or try the machinery without either: --quick."
        )


def on_sam(row: Row) -> bool:
    """Whether a row's model stands on MobileSAM."""
    named = [item.partition("=")[2] for item in row.overrides if item.startswith("model.peer=")]
    return any(find_peer(peer).trunk == "mobile-sam" for peer in named)


def _how_to_get(dataset: str, folder: Path) -> str:
    if dataset == "levir":  # not a benchmark's split, but that of the small tables
        return (
            "LEVIR-CD's images test_1 to test_24 in train/, test_25 to test_30 in val/, each with "
            "A, B and label"
        )
    return f"adadino prepare {dataset if dataset in BENCHMARKS else 'folder'} SOURCE {folder}"
