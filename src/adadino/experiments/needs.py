"""What a row needs before it can be trained: another run's ranking or model, a sorted backbone.

Each is made once, kept in the folder of the results, and found there afterwards.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from adadino.build import build
from adadino.checkpoint import load
from adadino.data.folder import PairFolder
from adadino.errors import BackboneWarning
from adadino.evaluation import same_size
from adadino.experiments.runs import content_of, run_config
from adadino.experiments.setting import Setting
from adadino.experiments.table import Row, Study
from adadino.files import write_atomic
from adadino.model.adadino import AdaDINO
from adadino.model.bscs import rank_chunks
from adadino.model.detector import Detector
from adadino.model.units import sort_units, unit_contributions
from adadino.peers import find_peer
from adadino.runtime.devices import choose_device
from adadino.training.config import RunConfig
from adadino.training.run import train

SAMPLE = 64
"""Training tiles over which the contributions of hidden units are measured."""


def waits(row: Row) -> bool:
    """Whether a row needs another row's model first."""
    return row.ranked_by is not None or row.taught_by is not None


def prepared(row: Row, seed: int, setting: Setting) -> dict[str, str]:
    """Make what a row needs; returns the arguments that `run_config` takes for it."""
    needs: dict[str, str] = {}
    plain = dataclasses.replace(row, ranked_by=None, taught_by=None, sorted_units=False)
    if row.ranked_by is not None:
        base = run_config(dataclasses.replace(plain, overrides=row.ranked_by), seed, setting)
        needs["ranking"] = _ranking(base, row.study, setting)
    if row.taught_by is not None:
        base = run_config(dataclasses.replace(plain, overrides=row.taught_by), seed, setting)
        trained(base, row.study, setting)
        needs["teacher"] = str(Path(base.output) / row.study.checkpoint)
    if row.sorted_units:
        needs["backbone"] = _sorted_backbone(run_config(plain, seed, setting), setting)
    return needs


def trained(config: RunConfig, study: Study, setting: Setting) -> tuple[Detector, float]:
    """A model, trained if it was not yet, and the seconds that took; none where nothing learns."""
    peer = config.model.peer
    if peer is not None and not find_peer(peer).trained:
        return build(config.model).eval(), 0.0
    with warnings.catch_warnings():
        # Without weights only --quick gets here, and its tables say what they are.
        warnings.simplefilter("ignore", BackboneWarning)
        result = train(config, quiet=True, device=setting.device)
    return load(Path(config.output) / study.checkpoint), result.seconds


def _ranking(config: RunConfig, study: Study, setting: Setting) -> str:
    """Chunks by the trained policy's mean score over the training set, kept beside the model."""
    path = Path(config.output) / "results" / "ranking.json"
    if not path.is_file():
        device = choose_device(setting.device)
        model = trained(config, study, setting)[0].to(device)
        with torch.inference_mode():
            pairs = _training_pairs(config, device)
            write_atomic(path, json.dumps(rank_chunks(model, pairs)))
    return path.read_text()


def _sorted_backbone(config: RunConfig, setting: Setting) -> str:
    """A copy of the backbone whose hidden units are sorted by what they do on training tiles."""
    backbone = config.model.backbone
    seen = [Path(root).name for root in config.data.root], config.data.tile, config.model.scale
    asked = repr((content_of(backbone.weights), backbone.name, backbone.patch, *seen))
    folder = setting.out / "backbones" / hashlib.sha256(asked.encode()).hexdigest()[:10]
    if not (folder / "config.json").is_file():
        torch.manual_seed(0)  # --quick has a random one
        model = build(config.model)
        assert isinstance(model, AdaDINO)
        device = choose_device(setting.device)
        model = model.to(device).eval()
        images = (
            model.prepare(model.pad(torch.cat(pair)))
            for pair in _training_pairs(config, device, most=SAMPLE)
        )
        dino = model.encoder.backbone
        sort_units(dino, unit_contributions(dino, images))
        from safetensors.torch import save

        tensors = {name: t.cpu().contiguous() for name, t in dino.state_dict().items()}
        write_atomic(folder / "model.safetensors", save(tensors))
        kept = dino.config
        said = {"mean": kept.mean, "std": kept.std, "grid_offset": kept.grid_offset}
        write_atomic(folder / "config.json", json.dumps(said))
    return str(folder)


def _training_pairs(
    config: RunConfig, device: torch.device, *, most: int | None = None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches of the training split as the model takes them; `most` tiles, spread evenly."""
    data, batch = config.data, config.train.batch
    dataset = PairFolder(data.root, "train", tile=data.tile, cache=data.cache)
    step = 1 if most is None else max(1, len(dataset) // most)
    chosen = range(0, len(dataset), step)
    for start in range(0, len(chosen), batch):
        for before, after, _ in same_size(dataset, chosen[start : start + batch]):
            yield before.to(device).float() / 255, after.to(device).float() / 255
