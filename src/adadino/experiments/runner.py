"""Fill a table in: train what is missing, score it, keep every result.

A model is trained once for each seed, in a folder named after its configuration, so tables share
models, an interrupted run goes on, and what is finished is never done again.
"""

from __future__ import annotations

import functools
import hashlib
import json
import multiprocessing
import os
import statistics
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from adadino.benchmark.cost import gflops, throughput
from adadino.build import new_model
from adadino.data.folder import PairFolder, find_pairs, fingerprint
from adadino.engine import optimize
from adadino.errors import DataError
from adadino.evaluation import Protocol, evaluate
from adadino.experiments.needs import prepared, trained, waits
from adadino.experiments.runs import (
    check_inputs,
    datasets,
    run_config,
    write_stand_in,
)
from adadino.experiments.setting import Setting
from adadino.experiments.table import COSTS, Metric, Row, Study, Table
from adadino.files import write_atomic
from adadino.model.detector import Detector
from adadino.runtime.devices import choose_device
from adadino.training.config import RunConfig
from adadino.training.step import set_up

Say = Callable[[str], None]


@dataclass(frozen=True)
class Filled:
    """A row with our figures: one list entry for each seed, of a cost only one."""

    row: Row
    ours: dict[Metric, list[float]]

    def as_dict(self) -> dict[str, Any]:
        """What `adadino reproduce --json` prints of it; the spread is half the range."""
        return {
            "name": self.row.name,
            "dataset": self.row.dataset,
            "ours": {m: statistics.fmean(v) for m, v in self.ours.items()},
            "spread": {m: (max(v) - min(v)) / 2 for m, v in self.ours.items()},
            "seeds": max((len(v) for v in self.ours.values()), default=0),
            "paper": dict(self.row.paper),
        }


def reproduce(table: Table, setting: Setting, say: Say = lambda _: None) -> list[Filled]:
    """Train and score all rows of a table.

    Args:
        table: What to fill in.
        setting: Data, weights, seeds, place of the results.
        say: Called with a line before each piece of work.

    Raises:
        DataError: Data or weights are missing; the message lists all of them.
    """
    check_inputs(table, setting)
    if setting.quick:
        for dataset in datasets(table):
            write_stand_in(setting.out, dataset)
    if setting.jobs > 1:
        _together(table, setting, say)
    filled = []
    with _one_thread() if setting.quick else nullcontext():
        for row in table.rows:
            results = []
            for seed in setting.seeds:
                say(f"{table.name}: {row.name}, seed {seed}")
                results.append(_result(row, seed, setting))
            scores = [m for m in table.metrics if m not in COSTS]
            ours: dict[Metric, list[float]] = {m: [r[m] for r in results] for m in scores}
            ours |= {m: [_cost(m, row, setting)] for m in table.metrics if m in COSTS}
            filled.append(Filled(row, ours))
    return filled


def _together(table: Table, setting: Setting, say: Say) -> None:
    """Train and score what a table needs in several processes; the table then finds it done.

    Costs are not measured here, where the models compete for the device.
    """
    # Rows that need another row's model wait for it.
    for later in (False, True):
        work: dict[str, list[tuple[Row, int]]] = {}
        for seed in setting.seeds:
            for row in table.rows:
                if waits(row) == later:
                    needs = prepared(row, seed, setting)
                    place = run_config(row, seed, setting, **needs).output
                    work.setdefault(place, []).append((row, seed))
        context = multiprocessing.get_context("spawn")  # a fork would inherit CUDA
        with ProcessPoolExecutor(
            setting.jobs, mp_context=context, initializer=_end_with_parent
        ) as pool:
            runs = {pool.submit(_alone, rows, setting): rows for rows in work.values()}
            for run in as_completed(runs):
                run.result()
                for row, seed in runs[run]:
                    say(f"{table.name}: {row.name}, seed {seed}: trained")


def _end_with_parent() -> None:
    """End with the parent: a killed command's processes would go on training and hold its pipes."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _alone(rows: Sequence[tuple[Row, int]], setting: Setting) -> None:
    """Train one model in a process of its own, and score it for its rows."""
    with _one_thread() if setting.quick else nullcontext():
        for row, seed in rows:
            _result(row, seed, setting)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Run torch on one thread.

    The operations of 64 pixel tiles take microseconds. Split over threads, each waits for the
    slowest, and beside other processes a step becomes sixteen times slower.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _result(row: Row, seed: int, setting: Setting) -> dict[Metric, float]:
    """A model's scores, and the minutes of its training."""
    config = run_config(row, seed, setting, **prepared(row, seed, setting))
    scored = [_scored(config, row.study, protocol, setting) for protocol in row.protocols]
    if row.pick == "worst":
        return min(scored, key=lambda scores: scores["f1"])
    return {m: statistics.fmean(scores[m] for scores in scored) for m in scored[0]}


def _scored(
    config: RunConfig, study: Study, protocol: Protocol, setting: Setting
) -> dict[Metric, float]:
    """One model under one protocol, from its folder if it was scored before.

    Raises:
        DataError: It was scored on other pairs than there are now.
    """
    asked = [protocol, study.split, study.checkpoint]
    path = Path(config.output) / "results" / f"{_key(asked)}.json"
    if path.is_file():
        kept = json.loads(path.read_text())
        for root in config.data.root:
            name = Path(root).name
            then = {
                study.split: kept["evaluation"][name]["fingerprint"],
                "train": kept.get("training", {}).get(name),
            }
            for split, before in then.items():
                if before is not None and before != _pairs(root, split):
                    raise DataError(
                        f"{path} holds scores on other pairs than {root}/{split} has now; give "
                        "another --output."
                    )
        found: dict[Metric, float] = kept["ours"]
        return found
    device = choose_device(setting.device)
    model, seconds = trained(config, study, setting)
    ours = {"minutes": seconds / 60}
    said = {}
    # A folder that counts thrice in training is scored once.
    for root in dict.fromkeys(config.data.root):
        dataset = PairFolder(root, study.split, tile=config.data.tile, cache=config.data.cache)
        scores = evaluate(model, dataset, protocol, device=device)
        name, f1, iou = Path(root).name, 100 * scores.confusion.f1, 100 * scores.confusion.iou
        ours |= {"f1": f1, "iou": iou, f"f1_{name}": f1, f"iou_{name}": iou}
        said[name] = scores.as_dict()
    training = {Path(root).name: _pairs(root, "train") for root in config.data.root}
    kept = {"ours": ours, "training": training, "evaluation": said}
    write_atomic(path, json.dumps(kept, indent=2) + "\n")
    return ours  # type: ignore[return-value]


def _cost(metric: Metric, row: Row, setting: Setting) -> float:
    """What a row's model costs, from its folder if it was measured before on such a device.

    Neither weights nor seeds matter to it: measured once, of an untrained model.
    """
    seed, batch = setting.seeds[0], row.protocols[0].batch
    config = run_config(row, seed, setting, **prepared(row, seed, setting))
    device = choose_device(setting.device)
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    path = Path(config.output) / "results" / f"cost-{_key([metric, batch, where])}.json"
    if path.is_file():
        return float(json.loads(path.read_text())[metric])
    model = new_model(config.model).to(device)
    match metric:
        case "parameters":
            found = sum(p.numel() for p in model.parameters()) / 1e6
        case "gflops":
            found = gflops(model.config)
        case _:
            fast = metric == "fast_pairs_per_s"
            model = _in_bf16(model) if fast else model
            size, warmup, measured = (64, 1, 1) if setting.quick else (256, 5, 20)
            found = throughput(
                model,
                batch=batch,
                size=size,
                warmup=warmup,
                measured=measured,
                recorded=row.study.recorded and model.precision is None,  # an engine records itself
            )
    write_atomic(path, json.dumps({metric: found}) + "\n")
    return found


def _in_bf16(model: Detector) -> Detector:
    """The fastest form of a model in bf16: AdaDINO's engine, a peer with channels last."""
    if model.bscs is not None:
        return optimize(model, precision="bf16", compile=False)
    return set_up(model.to(torch.bfloat16), precision="bf16")


def _key(asked: object) -> str:
    """A file's name from what was asked."""
    return hashlib.sha256(repr(asked).encode()).hexdigest()[:10]


@functools.cache
def _pairs(root: str, split: str) -> str:
    """The fingerprint of a split."""
    return fingerprint(find_pairs(root, split))
