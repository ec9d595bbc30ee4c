"""What the steps of `engine_gpu.py` share: settings, model, clock, and what was found so far."""

from __future__ import annotations

import argparse
import dataclasses
import gc
import json
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

import engine_checks
import torch

from adadino.benchmark import run as benchmark
from adadino.benchmark.cost import wait
from adadino.benchmark.measured import Protocol, Report, fill_speedups
from adadino.config import preset
from adadino.model.adadino import AdaDINO

Rows = Iterator[dict]
WAYS = ({}, {"cuda_graph": False}, {"cuda_graph": False, "compile": False})
"""How to run the engine: as it is meant, and what is left if that fails."""


class Bench:
    """What the steps share: the settings, the model, the clock and what was found so far."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.began = args, time.perf_counter()
        self.device = torch.device(args.device)
        self.cuda = self.device.type == "cuda"
        self.config = preset(args.preset)
        self.full = self.config.bscs.chunks
        self.report = Report()
        self.way: dict[str, bool] = {}
        self.plain: AdaDINO | None = None
        self.path: Path = args.out / "engine.json"
        self.found: dict[str, list] = {}
        if args.go_on:
            self.found = json.loads(self.path.read_text())

    def left(self) -> float:
        """Seconds of the budget."""
        return self.args.budget - (time.perf_counter() - self.began)

    def add(self, step: str, row: dict) -> None:
        """Keep a row: on the screen, and in the file at once."""
        print(f"[{step}]", *(f"{key}={value}" for key, value in row.items()), flush=True)
        self.found.setdefault(step, []).append(row)
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps(self.found, indent=1, default=str))
        part.replace(self.path)

    def grid(self) -> int:
        """Patches along a side."""
        return self.args.size // self.config.stride

    def model(self) -> AdaDINO:
        """The plain model, fp32, random weights."""
        if self.plain is None:
            self.plain = engine_checks.lively(self.config, self.device)
        return self.plain

    def cells(
        self, mode: str, budgets: list[int], batch: int, size: int, protocol: Protocol
    ) -> Rows:
        """Rows of `adadino benchmark`, one by one, each while there is time."""
        for k in budgets:
            if self.left() < 0:
                yield {"mode": mode, "k": k, "why": "left out: the budget is spent"}
                continue
            found = self._cell(mode, k, batch, size, protocol)
            self.report.rows += found.rows
            self.report.skipped += found.skipped
            fill_speedups(self.report, self.full)
            rows = self.report.rows[len(self.report.rows) - len(found.rows) :]
            yield from (
                {**rounded(dataclasses.asdict(row)), "ms_per_pair": round(1e3 / row.pairs_per_s, 3),
                 "protocol": f"{protocol.warmup}+{protocol.measured}", **self.way}
                for row in rows
            )  # fmt: skip
            yield from ({"why": reason} for reason in found.skipped)

    def _cell(self, mode: str, k: int, batch: int, size: int, protocol: Protocol) -> Report:
        ways = WAYS[WAYS.index(self.way) :] if mode != "paper" else ({},)
        for way in ways:
            try:
                found = benchmark.run(
                    self.config,
                    modes=[mode],
                    budgets=[k],
                    shapes=[(batch, size)],
                    device=self.device,
                    protocol=protocol,
                    reference=False,
                    plain=self.model(),
                    **way,
                )
            except Exception:
                if way is ways[-1] or not self.usable():
                    raise
                traceback.print_exc(limit=-6)
                print(f"that was with {way or 'the defaults'}; trying another way", flush=True)
                self.free()
            else:
                self.way = way if mode != "paper" else self.way
                return found
        raise AssertionError("no way left")

    def usable(self) -> bool:
        """Whether the device still answers: after some errors it does not, in this process."""
        try:
            wait(self.device)
            torch.zeros(1, device=self.device).add_(1).item()
        except Exception:
            return False
        return True

    def free(self) -> None:
        """Give back what is no longer needed."""
        gc.collect()
        if self.cuda:
            torch.cuda.empty_cache()


def rounded(row: dict) -> dict:
    """A row with three digits behind the point."""
    return {name: round(v, 3) if isinstance(v, float) else v for name, v in row.items()}
