"""Small runs for the tests of training: a dataset of 32 pixel tiles, a model of milliseconds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from adadino.data.synthetic import write_dataset
from adadino.training.config import RunConfig, load_run
from adadino.training.run import RunResult, train

SMALL = (
    "preset=tiny",
    "model.backbone.dim=32",
    "model.backbone.depth=4",
    "model.backbone.heads=2",
    "model.backbone.ffn=64",
    "model.backbone.registers=2",
    "model.bscs.chunks=8",
    "model.bscs.k=3",
    "model.bscs.hidden=16",
    "model.cpgr.width=16",
    "augment.size=32",
    "data.workers=0",
    "train.epochs=4",
    "train.batch=2",
    "train.lr=5e-3",
    "train.bscs_warmup=1",
    "train.lambda_start=1",
    "train.lambda_ramp=2",
)


def dataset(folder: Path, **splits: int) -> Path:
    write_dataset(folder, splits or {"train": 9, "val": 5}, size=32)
    return folder


def config(data: Path, output: Path, *overrides: str) -> RunConfig:
    return load_run(None, [*SMALL, f"data.root={data}", f"output={output}", *overrides])


def run(data: Path, output: Path, *overrides: str, overwrite: bool = False) -> RunResult:
    return train(config(data, output, *overrides), overwrite=overwrite, quiet=True)


def command(data: Path, output: Path, *overrides: str) -> list[str]:
    dotted = [f"--{item}" for item in (*SMALL, *overrides)]
    base = [sys.executable, "-m", "adadino", "train", "--data", str(data), "-o", str(output)]
    return [*base, *dotted]


def environment() -> dict[str, str]:
    # One thread in each of several processes; and none of pytest-xdist's or DDP's variables.
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def start(arguments: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        arguments,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        start_new_session=True,
    )


def finish(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        arguments, capture_output=True, text=True, env=environment(), timeout=100, check=False
    )


def last(folder: Path) -> dict[str, Any]:
    state: dict[str, Any] = torch.load(folder / "last.ckpt", weights_only=True)
    return state


def same(a: dict[str, Any], b: dict[str, Any]) -> bool:
    """Whether two state dicts are equal bit for bit."""
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)
