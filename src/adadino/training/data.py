"""Batches for training and validation: every order follows from the seed and the epoch alone.

A resumed run therefore equals an uninterrupted one: there is no state of a random generator that
would have to be carried over.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Sampler

from adadino.build import kind_of
from adadino.config import ClassesConfig
from adadino.data.bands import with_limits
from adadino.data.folder import PairFolder, Place, find_pairs
from adadino.data.prepare.splits import ranked
from adadino.errors import ConfigError, DataError, TrainingError
from adadino.training.config import RunConfig

Batch = tuple[Tensor, Tensor, Tensor, Tensor]
Loader = DataLoader[tuple[Tensor, Tensor, Tensor, int]]


def open_splits(config: RunConfig) -> dict[str, PairFolder]:
    """Open the training and the validation pairs, each of one size: a batch is one tensor.

    Raises:
        ConfigError: There are no pairs, or they do not fit the model or the augmentation.
    """
    data, size = config.data, config.augment.size
    stride = getattr(kind_of(config.model), "stride", config.model.stride)
    if not any(data.root):
        raise ConfigError("data.root is not set; name the prepared dataset with --data DIR.")
    if size % stride:
        raise ConfigError(
            f"augment.size is {size}, must be a multiple of the model's stride, {stride} pixels."
        )
    sets = _folds(config) if data.fold is not None else _splits(config)
    if data.take is not None:
        sets["train"] = _take(sets["train"], data.take, config.train.seed)
    for split, pairs in sets.items():
        sizes = sorted(set(pairs.sizes))
        if len(sizes) > 1:
            raise ConfigError(
                f"{data.name}: {split} holds images of {len(sizes)} sizes, from "
                f"{sizes[0][0]} x {sizes[0][1]} to {sizes[-1][0]} x {sizes[-1][1]}; cut them with "
                "`adadino prepare`, or set data.tile."
            )
    if max(sets["train"].sizes[0]) > size:
        height, width = sets["train"].sizes[0]
        raise ConfigError(
            f"training images of {height} x {width} are larger than augment.size {size}; set "
            f"data.tile={size}."
        )
    return sets


def scaled(config: RunConfig) -> RunConfig:
    """A run whose bands have their limits: percentiles of its training images, if none are given.

    Raises:
        DataError: An image cannot be read, or lacks a band.
    """
    bands, data = config.model.bands, config.data
    if bands.is_scaled or not any(data.root):
        return config
    split = "train" if data.fold is None else None
    roots = dict.fromkeys(data.root)
    folders = [(root, split) for root in roots]
    if data.fold is not None:  # a fold holds out scenes; what is brought to 0..1 may know them
        folders = [
            (root, part)
            for root in roots
            for part in ("train", "val")
            if (Path(root) / part).is_dir()
        ]
    pairs = [pair for root, part in folders for pair in find_pairs(root, part)]
    limits = with_limits(bands, [path for pair in pairs for path in (pair.before, pair.after)])
    return dataclasses.replace(config, model=dataclasses.replace(config.model, bands=limits))


def _splits(config: RunConfig) -> dict[str, PairFolder]:
    """The splits as they lie in the folders."""
    data = config.data
    roots = {"train": data.root}
    if config.train.validate:
        # A folder that is named twice counts twice in training, and once in validation.
        roots["val"] = tuple(dict.fromkeys(data.root))
        _refuse_missing(roots["val"])
    return {
        split: PairFolder(
            root,
            split,
            tile=data.tile,
            cache=data.cache,
            bands=config.model.bands,
            classes=_classes(config),
        )
        for split, root in roots.items()
    }


def _classes(config: RunConfig) -> ClassesConfig | None:
    """The classes to learn; None for a model that tells change alone."""
    return config.model.classes if config.model.classes.names else None


def _folds(config: RunConfig) -> dict[str, PairFolder]:
    """One part of the scenes for validation, the others for training.

    Tiles of one scene are always in one part: `NAME_3_5` is a tile of NAME.
    """
    data = config.data
    part, parts = (int(number) for number in str(data.fold).split("/"))
    folders = [
        folder
        for root in dict.fromkeys(data.root)
        for folder in (Path(root) / "train", Path(root) / "val")
        if folder.is_dir()
    ]
    pool = PairFolder(
        folders,
        tile=data.tile,
        cache=data.cache,
        bands=config.model.bands,
        classes=_classes(config),
    )
    scenes = [re.sub(r"_\d+_\d+$", "", Path(name).name) for name in pool.names]
    order = ranked(set(scenes), 0)
    if len(order) < parts:
        raise ConfigError(
            f"{data.name} has {len(order)} scenes, too few for {parts} folds; ask for fewer folds."
        )
    held_out = set(order[part - 1 :: parts])
    sets = {
        "train": pool.keep([i for i, scene in enumerate(scenes) if scene not in held_out]),
        "val": pool.keep([i for i, scene in enumerate(scenes) if scene in held_out]),
    }
    return sets if config.train.validate else {"train": sets["train"]}


def _take(pairs: PairFolder, count: int, seed: int) -> PairFolder:
    if count > len(pairs):
        raise ConfigError(f"data.take is {count}, but there are {len(pairs)} training tiles.")
    chosen = set(ranked(pairs.names, seed)[:count])
    return pairs.keep([index for index, name in enumerate(pairs.names) if name in chosen])


def _refuse_missing(roots: tuple[str, ...]) -> None:
    """Say what to do where a dataset has no validation split."""
    for root in roots:
        if (Path(root) / "train").is_dir() and not (Path(root) / "val").is_dir():
            raise DataError(
                f"{root} has no val folder. Hold pairs out of train/ for it, or train without "
                "validation, so that no epoch is chosen and only final/ is kept: "
                "--train.validate false."
            )


class EpochSampler(Sampler[Place]):
    """A fresh permutation for every epoch, cut to whole batches and dealt out to the ranks."""

    def __init__(
        self, length: int, *, batch: int, seed: int, rank: int, world: int, roam: bool = False
    ) -> None:
        self.length, self.seed, self.rank, self.world = length, seed, rank, world
        self.roam = roam
        self.per_rank = length // (batch * world) * batch
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Lightning calls this before each epoch."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[Place]:
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.epoch)
        order = torch.randperm(self.length, generator=generator).tolist()
        mine = order[self.rank : self.per_rank * self.world : self.world]
        if not self.roam:
            return iter(mine)
        moves = (torch.rand(self.length, 2, generator=generator) - 0.5).tolist()
        return iter([(index, *moves[index]) for index in mine])

    def __len__(self) -> int:
        return self.per_rank


class ShareSampler(Sampler[int]):
    """Each rank's share of a split in order, nothing padded: no pair is ever scored twice.

    Whole batches are dealt out, the very ones that a single process makes: the pairs of a batch
    choose their FFN chunks together, so others beside a pair would change its score.
    """

    def __init__(self, length: int, *, batch: int, rank: int, world: int) -> None:
        starts = range(rank * batch, length, world * batch)
        self.indices = [index for s in starts for index in range(s, min(s + batch, length))]

    def __iter__(self) -> Iterator[int]:
        return iter(self.indices)

    def __len__(self) -> int:
        return len(self.indices)


class PairData(pl.LightningDataModule):
    """The loaders of a run, for whichever rank asks."""

    def __init__(self, sets: Mapping[str, PairFolder], config: RunConfig) -> None:
        super().__init__()
        self.sets, self.config = sets, config

    def train_dataloader(self) -> Loader:
        """Shuffled whole batches."""
        trainer, settings, dataset = self.trainer, self.config.train, self.sets["train"]
        assert trainer is not None
        sampler = EpochSampler(
            len(dataset),
            batch=settings.batch,
            seed=settings.seed,
            rank=trainer.global_rank,
            world=trainer.world_size,
            roam=self.config.data.roam,
        )
        if not len(sampler):
            raise TrainingError(
                f"{self.config.data.name}: {len(dataset)} training tiles do not fill one batch of "
                f"{settings.batch} on {trainer.world_size} device(s); lower train.batch."
            )
        # In a resumed run Lightning starts the reading processes before it calls set_epoch, and
        # before its own count of epochs is right; the checkpoint's history is.
        history = cast(Any, trainer.lightning_module).history
        sampler.set_epoch(int(history[-1]["epoch"]) if history else 0)
        return self.loader(dataset, sampler)

    def val_dataloader(self) -> Loader:
        """Every pair once, in order."""
        trainer, dataset = self.trainer, self.sets["val"]
        assert trainer is not None
        batch, rank, world = self.config.train.batch, trainer.global_rank, trainer.world_size
        if len(dataset) <= batch * (world - 1):
            raise TrainingError(
                f"{self.config.data.name}: {len(dataset)} validation tile(s) make too few batches "
                f"of {batch} for {world} devices; lower train.devices or train.batch."
            )
        sampler = ShareSampler(len(dataset), batch=batch, rank=rank, world=world)
        return self.loader(dataset, sampler)

    def loader(self, dataset: PairFolder, sampler: Sampler[Any]) -> Loader:
        """Batches in the order of a sampler."""
        workers = self.config.data.workers
        return DataLoader(
            dataset,
            batch_size=self.config.train.batch,
            sampler=sampler,
            num_workers=workers,
            persistent_workers=workers > 0,
            pin_memory=torch.cuda.is_available(),
        )
