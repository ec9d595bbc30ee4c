"""How many pairs a second the augmentation gives, alone and behind a folder of pairs.

    python benchmarks/augmentation.py
    python benchmarks/augmentation.py --data LEVIR-CD/train --workers 8

The first row keeps one batch on the device and augments it again and again; the second reads,
decodes, cuts and collates real pairs as well.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from adadino.data.augment import Augment, AugmentConfig

Batch = tuple[Tensor, Tensor, Tensor]


def main() -> None:
    parser = argparse.ArgumentParser(description="Pairs a second of the augmentation.")
    parser.add_argument("--data", type=Path, help="folder with A, B and label, to read as well")
    parser.add_argument("--batch", type=int, default=16, help="pairs in a batch")
    parser.add_argument("--size", type=int, default=256, help="side of the tiles in pixels")
    parser.add_argument("--workers", type=int, default=4, help="processes that read the folder")
    parser.add_argument("--warmup", type=int, default=10, help="batches before the clock starts")
    parser.add_argument("--measured", type=int, default=50, help="batches on the clock")
    options = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    augment = Augment(AugmentConfig(size=options.size))
    sources = {"augmentation": in_memory(options.batch, options.size, device)}
    if options.data is not None:
        folder = from_folder(options.data, options.batch, options.size, options.workers, device)
        sources["folder + augmentation"] = folder
    print(f"{'what':<24}{'device':<10}{'batch':>6}{'size':>6}{'pairs/s':>10}")
    for name, batches in sources.items():
        rate = pairs_per_second(augment, batches, options.warmup, options.measured, device)
        print(f"{name:<24}{device.type:<10}{options.batch:>6}{options.size:>6}{rate:>10.0f}")


def in_memory(batch: int, size: int, device: torch.device) -> Iterator[Batch]:
    """Yield the same batch of noise, already on the device, for ever."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(
        256, (2, batch, 3, size, size), generator=generator, dtype=torch.uint8
    ).to(device)
    mask = (torch.rand(batch, size, size, generator=generator) < 0.1).to(torch.uint8).to(device)
    return itertools.repeat((images[0], images[1], mask))


def from_folder(
    root: Path, batch: int, size: int, workers: int, device: torch.device
) -> Iterator[Batch]:
    """Yield batches of a folder in random order, for ever."""
    from adadino.data.folder import PairFolder  # only the second row needs it

    loader: DataLoader[tuple[Tensor, Tensor, Tensor, int]] = DataLoader(
        PairFolder(root, tile=size),
        batch_size=batch,
        shuffle=True,
        num_workers=workers,
        pin_memory=device.type == "cuda",
        persistent_workers=workers > 0,
    )
    while True:
        for before, after, mask, _ in loader:
            yield tuple(each.to(device, non_blocking=True) for each in (before, after, mask))


def pairs_per_second(
    augment: Augment, batches: Iterator[Batch], warmup: int, measured: int, device: torch.device
) -> float:
    """Augment ``warmup`` batches off the clock, then ``measured`` on it."""
    generator = torch.Generator().manual_seed(0)
    pairs = 0
    for index in range(warmup + measured):
        if index == warmup:
            synchronize(device)
            start = time.perf_counter()
        before, after, mask = next(batches)
        augment(before, after, mask, generator)
        pairs += len(mask) if index >= warmup else 0
    synchronize(device)
    return pairs / (time.perf_counter() - start)


def synchronize(device: torch.device) -> None:
    """Wait for the device, so that the clock sees its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


if __name__ == "__main__":
    main()
