"""A trained model and labelled tiles in; a better model out, or the reason to keep the old one.

1. Read the tiles and divide them into folds.
2. Compute the frozen features of all views, once.
3. For every fold: train on the others, and count every few updates what the model gets right on the
   fold itself.
4. For every fold, choose the number of updates that was best on all other folds, and compare the
   old model and the new one at that point. No tile in that figure was trained on, nor did its own
   score choose when to stop.
5. Train on all tiles for as many updates as were best over all folds, and write the model if it
   is better.

Everything finished is kept in a hidden folder beside the output until the end: the same command
goes on from there, to the same weights.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from adadino.checkpoint import load, save
from adadino.data.synthetic import make_pair
from adadino.domain import Domain
from adadino.errors import DataError, WriteError
from adadino.files import locked, work_folder, write_atomic
from adadino.model.adadino import AdaDINO
from adadino.runtime.devices import choose_device
from adadino.source import WEIGHTS, lineage, read_settings
from adadino.training.adapt.compare import Comparison, Looks, best_look, compare, held_out
from adadino.training.adapt.features import Frozen, Store, View, check_model, views_of
from adadino.training.adapt.fit import count, fit
from adadino.training.adapt.options import AdaptOptions, Part
from adadino.training.adapt.result import Adapted, as_markdown
from adadino.training.adapt.tiles import Tile, divide, pairs_of, read_tiles
from adadino.training.domain import folder_resolution, look_of_all

Report = Callable[[int, int, str], None]
SYNTHETIC_SEED = 900_000_000
"""The first seed of the synthetic pairs: far from those that `adadino synthesize` gives."""
FIRST = 5
"""Units of work after which the time that is left can be told."""
UNSEEN = 8
"""Synthetic pairs that show what was forgotten; they are never trained on."""


def adapt(
    source: str,
    data: Path | str,
    output: Path | str,
    options: AdaptOptions | None = None,
    *,
    replay: Path | str | None = None,
    backbone: str | None = None,
    device: str = "cpu",
    overwrite: bool = False,
    progress: Report | None = None,
) -> Adapted:
    """Fit a trained model to labelled tiles.

    Args:
        source: The trained model: tiny, a checkpoint folder, a hub id.
        data: A folder with A, B and label, or with a split train that has them.
        output: The new model's folder.
        options: What is trained, and how long.
        replay: A folder of pairs to train along against forgetting, beside the synthetic ones.
        backbone: The backbone's weights, for a checkpoint that does not carry them.
        device: Where to compute; on the CPU equal labels and options give equal weights.
        overwrite: Replace a model that is there, and begin anew.
        progress: Called with units of work done, all of them, and the time left.

    Raises:
        DataError: The tiles cannot be learned from.
        WriteError: The output exists.
    """
    options, output = options or AdaptOptions(), Path(output)
    if (output / WEIGHTS).exists() and not overwrite:
        raise WriteError(f"{output} holds a model; choose another name, or --overwrite.")
    started, used = time.monotonic(), time.process_time()
    tiles = read_tiles(Path(data))
    folds = divide(tiles, options.folds)
    part = options.trained(len(tiles))
    place = choose_device(device)
    model = check_model(load(source, backbone=backbone), part).to(place)
    others = [] if replay is None else read_tiles(Path(replay))
    if others and others[0].label.shape != tiles[0].label.shape:
        raise DataError(
            f"the tiles of {replay} and {data} have different sizes; cut both to one size: "
            "adadino prepare folder."
        )
    work = work_folder(output)
    with locked(work, "adaptation"):
        _open_work(work, _facts(source, tiles, others, options), overwrite=overwrite)
        job = _Job(model, part, tiles, others, options, work, progress)
        comparison, steps = job.cross_validate(folds)
        new = job.train_all(steps)
        forgetting = job.forgetting(new)
        keep = (comparison.better and steps > 0) or options.anyway
        found = Adapted(
            comparison, forgetting, len(tiles), len(folds), part, steps,
            time.monotonic() - started, time.process_time() - used,
            "new" if keep else "old", output if keep else None,
        )  # fmt: skip
        if keep:
            new.ancestors = lineage(source)
            new.temperature = 1.0  # the base's calibration is not the new model's
            new.domain = _domain(model, Path(data), tiles, options)
            save(
                new, output, extra=_card(source, f"{len(tiles)} tiles of {Path(data).name}", found)
            )
        write_atomic(output / "report.json", json.dumps(found.as_dict(), indent=2) + "\n")
        write_atomic(output / "report.md", as_markdown(source, found))
        shutil.rmtree(work, ignore_errors=True)
    return found


class _Job:
    """One adaptation while it runs."""

    def __init__(
        self,
        model: AdaDINO,
        part: Part,
        tiles: Sequence[Tile],
        others: Sequence[Tile],
        options: AdaptOptions,
        work: Path,
        progress: Report | None,
    ) -> None:
        self.model, self.tiles, self.options, self.work = model, tiles, options, work
        self.progress = progress
        self.done = self.skipped = 0
        size = (tiles[0].label.shape[0], tiles[0].label.shape[1])
        self.unseen = synthetic(SYNTHETIC_SEED + 1000, UNSEEN, size)
        along = [*synthetic(SYNTHETIC_SEED, options.replay, size), *others]
        self.views = list(views_of(tiles, options.views))
        self.replay = [View(tile, 0) for tile in along]
        kept = [*self.views, *self.replay, *(View(tile, 0) for tile in self.unseen)]
        self.total = len(kept) + (1 + min(options.folds, len(tiles))) * options.steps
        self.store = Store(work / "features", Frozen(model, part, tiles))
        self.began = time.monotonic()
        for view in kept:
            _ = self.store[view]
            self.step()

    def step(self, units: int = 1) -> None:
        """Report that a unit of work is done, and how long the rest will take."""
        self.done += units
        if self.progress is not None:
            spent, counted = time.monotonic() - self.began, self.done - self.skipped
            left = spent * (self.total - self.done) / max(counted, 1)
            text = f"about {max(left, 0) / 60:.1f} min left" if counted > FIRST else ""
            self.progress(self.done, self.total, text)

    def cross_validate(self, folds: Sequence[Sequence[int]]) -> tuple[Comparison, int]:
        """Both models on every fold, and the updates that were best."""
        self.total = self.done + (1 + len(folds)) * self.options.steps
        looks = [self._fold(index, folds) for index in range(len(folds))]
        old, new = held_out(looks)
        return compare(old, new, seed=self.options.seed), best_look(looks)

    def _fold(self, index: int, folds: Sequence[Sequence[int]]) -> Looks:
        """One fold's counts by updates: from disk, if a killed run has them."""
        path = self.work / f"fold-{index}.json"
        if path.is_file():
            self.skipped += self.options.steps
            self.step(self.options.steps)
            return {int(s): np.array(rows) for s, rows in json.loads(path.read_text()).items()}
        held = [self.tiles[n] for n in folds[index]]
        names = {tile.name for tile in held}
        views = [view for view in self.views if view.tile.name not in names]
        looks = fit(
            self.model, self.store, views, self.replay, self.options,
            seed=self.options.seed * 1000 + index, watch=held, step_done=self.step,
        ).looks  # fmt: skip
        write_atomic(path, json.dumps({str(s): rows.tolist() for s, rows in looks.items()}))
        return looks

    def train_all(self, steps: int) -> AdaDINO:
        """The model of all tiles."""
        fitted = fit(
            self.model, self.store, self.views, self.replay, self.options,
            seed=self.options.seed * 1000 + 999, steps=steps, step_done=self.step,
        )  # fmt: skip
        self.step(self.total - self.done)
        return fitted.model

    def forgetting(self, new: AdaDINO) -> Comparison:
        """Both models on synthetic pairs that neither has seen."""
        old = count(self.model, self.store, self.unseen)
        return compare(old, count(new, self.store, self.unseen), seed=self.options.seed)


def synthetic(first: int, number: int, size: tuple[int, int]) -> list[Tile]:
    """Synthetic pairs as tiles."""
    tiles = []
    for seed in range(first, first + number):
        pair = make_pair(seed, size)
        dates = [torch.from_numpy(image).permute(2, 0, 1) for image in (pair.before, pair.after)]
        label = torch.from_numpy(pair.mask) != 0
        name = f"synthetic-{seed}"
        known = torch.ones_like(label)
        tiles.append(Tile(name, name, (0, 0), dates[0], dates[1], label, known))
    return tiles


def _facts(
    source: str, tiles: Sequence[Tile], others: Sequence[Tile], options: AdaptOptions
) -> dict[str, Any]:
    """What the kept work depends on."""
    digest = hashlib.sha256()
    for tile in (*tiles, *others):
        digest.update(tile.name.encode())
        for tensor in (tile.before, tile.after, tile.label, tile.known):
            digest.update(tensor.contiguous().numpy().tobytes())
    model = [one["digest"] for one in lineage(source)]
    of_card = ("anyway", "resolution")
    said = {name: value for name, value in asdict(options).items() if name not in of_card}
    return {"model": model, "tiles": digest.hexdigest(), "options": said}


def _card(source: str, data: str, found: Adapted) -> dict[str, Any]:
    """What the new checkpoint says of itself: what the base learned from, and what came after."""
    said = read_settings(source)
    card = {name: said[name] for name in ("licence",) if name in said}
    return {**card, "trained_on": [*said.get("trained_on", []), data], "adapted": found.as_dict()}


def _domain(base: AdaDINO, data: Path, tiles: Sequence[Tile], options: AdaptOptions) -> Domain:
    """What the new model was trained on: what the base was, and the tiles."""
    said = options.resolution
    known = folder_resolution(pairs_of(data)) if said is None else (said, said)
    images = (date.numpy() for tile in tiles for date in (tile.before, tile.after))
    own = Domain(known, look_of_all(images))
    return own if base.domain is None else base.domain.joined(own)


def _open_work(work: Path, facts: dict[str, Any], *, overwrite: bool) -> None:
    """Go on with the work of the same adaptation; that of another one goes."""
    path = work / "facts.json"
    same = path.is_file() and json.loads(path.read_text()) == facts
    if not same or overwrite:
        shutil.rmtree(work / "features", ignore_errors=True)
        for fold in work.glob("fold-*.json"):
            fold.unlink()
    write_atomic(path, json.dumps(facts))
