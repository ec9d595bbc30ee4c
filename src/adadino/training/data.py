"""Batches for training and validation: every order follows from the seed and the epoch alone.

That is what makes a resumed run equal an uninterrupted one: no state of a random generator has to be
carried over, because there is none.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Sampler

from adadino.data.folder import PairFolder
from adadino.errors import TrainingError
from adadino.training.config import DataConfig

Batch = tuple[Tensor, Tensor, Tensor, Tensor]


class EpochSampler(Sampler[int]):
    """A fresh permutation for every epoch, cut to whole batches and dealt out to the ranks."""

    def __init__(self, length: int, *, batch: int, seed: int, rank: int, world: int) -> None:
        self.length, self.seed, self.rank, self.world = length, seed, rank, world
        self.per_rank = length // (batch * world) * batch
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Lightning calls this before each epoch, also after a resume."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.epoch)
        order = torch.randperm(self.length, generator=generator).tolist()
        return iter(order[self.rank : self.per_rank * self.world : self.world])

    def __len__(self) -> int:
        return self.per_rank


class ShareSampler(Sampler[int]):
    """Each rank's share of a split in order, nothing padded: no pair is ever scored twice."""

    def __init__(self, length: int, *, rank: int, world: int) -> None:
        self.indices = range(rank, length, world)

    def __iter__(self) -> Iterator[int]:
        return iter(self.indices)

    def __len__(self) -> int:
        return len(self.indices)


def train_loader(
    dataset: PairFolder, config: DataConfig, *, batch: int, seed: int, rank: int, world: int
) -> DataLoader[tuple[Tensor, Tensor, Tensor, int]]:
    """Shuffled whole batches."""
    sampler = EpochSampler(len(dataset), batch=batch, seed=seed, rank=rank, world=world)
    if not len(sampler):
        raise TrainingError(
            f"{config.root}: {len(dataset)} training tiles do not fill one batch of {batch} on "
            f"{world} device(s); lower train.batch."
        )
    return _loader(dataset, sampler, config, batch)


def val_loader(
    dataset: PairFolder, config: DataConfig, *, batch: int, rank: int, world: int
) -> DataLoader[tuple[Tensor, Tensor, Tensor, int]]:
    """Every pair once, in order."""
    return _loader(dataset, ShareSampler(len(dataset), rank=rank, world=world), config, batch)


def _loader(
    dataset: PairFolder, sampler: Sampler[int], config: DataConfig, batch: int
) -> DataLoader[tuple[Tensor, Tensor, Tensor, int]]:
    return DataLoader(
        dataset,
        batch_size=batch,
        sampler=sampler,
        num_workers=config.workers,
        persistent_workers=config.workers > 0,
        pin_memory=torch.cuda.is_available(),
    )
