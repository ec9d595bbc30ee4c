"""Table 3's protocol over our modes, with transformers' encoder as the outside reference.

5 warm-up and 20 measured batches, policy and gather included, data already on the device.

An engine's answers are compared with the plain model's first: a wrong one is not timed.

On a GPU one mode runs after the other, so that each has the memory to itself. On a CPU they take
turns and the median turn counts: another process then slows all of them, and the ratios hold.
"""

from __future__ import annotations

import dataclasses
import gc
import statistics
import time
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import cast

import torch
from torch import Tensor

from adadino.benchmark.cost import exact_fp32, ffn_ms, gflops, wait
from adadino.benchmark.modes import (
    Encode,
    ModeError,
    arithmetic,
    check,
    make,
    reference_encoders,
)
from adadino.benchmark.options import Mode, Timing
from adadino.benchmark.report import Measurement, Reference, Report, fill_speedups
from adadino.config import Config
from adadino.model.adadino import AdaDINO
from adadino.model.detector import Detector

Say = Callable[[str], None]


def run(
    config: Config,
    *,
    modes: Sequence[Mode],
    budgets: Sequence[int],
    shapes: Sequence[tuple[int, int]],
    device: torch.device,
    protocol: Timing,
    reference: bool = True,
    say: Say = lambda _: None,
) -> Report:
    """Measure every mode and budget at every shape.

    Args:
        config: The model; its weights are random, speed does not depend on them.
        modes: Which modes.
        budgets: Values of k; the full budget gives the speed-ups their base.
        shapes: (batch, side of the input in pixels).
        device: The device to measure.
        protocol: How many batches.
        reference: Whether to measure transformers' encoder too.
        say: Called with what is being measured.
    """
    report = Report()
    torch.manual_seed(0)
    with device, exact_fp32():
        base = AdaDINO(config).eval()

    checked: dict[str, float] = {}

    def made(mode: Mode) -> Detector:
        model = make(base, mode)
        if model is not base and mode not in checked:
            say(f"{mode}: checking its answers")
            checked[mode] = check(model, base, mode, images)
        return model

    for batch, size in shapes:
        images = [torch.rand(batch, 3, size, size, device=device) for _ in "ab"]
        encoders = _references(report, config, device) if reference else {}
        if device.type == "cpu":
            _take_turns(report, config, made, modes, budgets, encoders, images, protocol, say)
            continue
        for mode in modes:
            _one_by_one(report, made, mode, budgets, images, protocol, say)
        for name, build in encoders.items():
            _one_reference(report, name, build, config, images, protocol, say)
    for index, row in enumerate(report.rows):  # compilation happened in the check
        first = row.first_call_s + checked.pop(row.mode, 0.0)
        report.rows[index] = dataclasses.replace(row, first_call_s=first)
    fill_speedups(report, config.bscs.chunks)
    return report


def _one_by_one(
    report: Report,
    made: Callable[[Mode], Detector],
    mode: Mode,
    budgets: Sequence[int],
    images: list[Tensor],
    protocol: Timing,
    say: Say,
) -> None:
    model: Detector | None = None
    batch, size = len(images[0]), images[0].shape[-1]
    plain = 0 if mode == "paper" else torch.cuda.memory_allocated(images[0].device)
    for k in budgets:
        say(f"{mode}, k={k}, {batch} pairs of {size} px")
        try:
            model = model or made(mode)
            report.rows.append(_measure(model, mode, k, images, protocol, plain))
        except (ModeError, NotImplementedError) as error:
            report.skipped.append(f"{mode}: {error}.")
            return
        except torch.OutOfMemoryError:
            report.skipped.append(f"{mode}, k={k}, {batch} pairs of {size} px: out of memory.")
            model = None
            _free()
    del model
    _free()


def _free() -> None:
    """Free the memory of models that are no longer used; compiled ones are reference cycles."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _measure(
    model: Detector, mode: Mode, k: int, images: list[Tensor], protocol: Timing, plain: int
) -> Measurement:
    device = images[0].device
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)

    def forward() -> object:
        return model(*images, k=k)

    with torch.inference_mode(), arithmetic(mode):
        first = _seconds(forward, device)
        for _ in range(max(protocol.warmup, 2) - 1):  # the second of a shape records its graph
            forward()
        seconds = _seconds(forward, device, protocol.measured) / protocol.measured
    memory = None
    if device.type == "cuda":
        memory = (torch.cuda.max_memory_allocated(device) - plain) / 1e9
    return _row(model, mode, k, images, seconds, first, memory)


def _take_turns(
    report: Report,
    config: Config,
    made: Callable[[Mode], Detector],
    modes: Sequence[Mode],
    budgets: Sequence[int],
    encoders: dict[str, Callable[[], Encode]],
    images: list[Tensor],
    protocol: Timing,
    say: Say,
) -> None:
    models: dict[Mode, Detector] = {}
    for mode in modes:
        try:
            models[mode] = made(mode)
        except (ModeError, NotImplementedError) as error:
            report.skipped.append(f"{mode}: {error}.")
    passes: dict[tuple[str, int], Callable[[], object]] = {
        (mode, k): partial(model, *images, k=k) for mode, model in models.items() for k in budgets
    }
    inside = _inside(config, images)
    passes |= {(name, 0): partial(build(), inside) for name, build in encoders.items()}
    times: dict[tuple[str, int], list[float]] = {key: [] for key in passes}
    for turn in range(protocol.warmup + protocol.measured if passes else 0):
        say(f"turn {turn + 1} of {protocol.warmup + protocol.measured}")
        for key, forward in passes.items():
            with torch.inference_mode():
                times[key].append(_seconds(forward, inside.device))
    batch, size = len(images[0]), images[0].shape[-1]
    for (name, k), taken in times.items():
        median = statistics.median(taken[protocol.warmup :])
        if name in encoders:
            report.reference.append(Reference(name, batch, size, batch / median))
        else:
            mode = cast(Mode, name)
            report.rows.append(_row(models[mode], mode, k, images, median, taken[0]))


def _row(
    model: Detector,
    mode: Mode,
    k: int,
    images: list[Tensor],
    seconds: float,
    first: float,
    memory: float | None = None,
) -> Measurement:
    batch, size = len(images[0]), images[0].shape[-1]
    cuda = images[0].is_cuda
    with arithmetic(mode):
        forward = partial(model.unrecorded, *images, k=k)  # a replayed graph shows no layers
        ffn = ffn_ms(model.ffn_layers, forward, images[0].device, times=3 if cuda else 1)
    return Measurement(
        mode=mode,
        k=k,
        batch=batch,
        size=size,
        gflops=round(_gflops(model.config, k, size), 2),
        pairs_per_s=batch / seconds,
        speedup=None,
        over_fp32=None,
        ffn_ms=ffn / batch,
        memory_gb=memory,
        first_call_s=first,
    )


@cache
def _gflops(config: Config, k: int, size: int) -> float:
    return gflops(config, k=k, size=size)


def _references(
    report: Report, config: Config, device: torch.device
) -> dict[str, Callable[[], Encode]]:
    try:
        return reference_encoders(config.backbone, device)
    except ImportError as error:
        report.skipped.append(f"reference: transformers' DINOv3ViTModel is not here ({error}).")
        return {}


def _one_reference(
    report: Report,
    name: str,
    build: Callable[[], Encode],
    config: Config,
    images: list[Tensor],
    protocol: Timing,
    say: Say,
) -> None:
    batch, size = len(images[0]), images[0].shape[-1]
    say(f"transformers, {name}, {batch} pairs of {size} px")
    try:
        with torch.inference_mode(), exact_fp32():
            forward = partial(build(), _inside(config, images))
            for _ in range(protocol.warmup):
                forward()
            seconds = _seconds(forward, images[0].device, protocol.measured) / protocol.measured
    except torch.OutOfMemoryError:
        report.skipped.append(f"reference, {name}, {batch} pairs of {size} px: out of memory.")
        return
    report.reference.append(Reference(name, batch, size, batch / seconds))
    del forward
    _free()


def _inside(config: Config, images: list[Tensor]) -> Tensor:
    """Both dates at the size that our encoder sees."""
    batch, size = len(images[0]), images[0].shape[-1]
    side = -(-size // config.stride) * config.stride * config.scale
    return torch.randn(2 * batch, 3, side, side, device=images[0].device)


def _seconds(forward: Callable[[], object], device: torch.device, times: int = 1) -> float:
    wait(device)
    began = time.perf_counter()
    for _ in range(times):
        forward()
    wait(device)
    return time.perf_counter() - began
