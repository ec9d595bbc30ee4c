"""Table 3's protocol over our modes, with transformers' encoder as the outside reference.

5 warm-up and 20 measured batches, policy and gather included, data already on the device. Modes:

- `paper`: the plain model, fp32, TF32 off, eager.
- `fast`: the engine, bf16 where the device computes in it.
- `fp8`, `int8`: the engine with the frozen weights in eight bits; on a GPU, on a CPU.

On a GPU one mode runs after the other, so that each has the memory to itself. On a CPU they take
turns and the median turn counts: another process then slows all of them, and the ratios hold.
"""

from __future__ import annotations

import dataclasses
import gc
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Literal, cast

import torch
from torch import Tensor, nn

from adadino.config import Config
from adadino.engine.model import Engine, optimize
from adadino.engine.reference import Encode, reference_encoders
from adadino.errors import ConfigError
from adadino.model.adadino import AdaDINO
from adadino.model.detector import Detector
from adadino.profiling import exact_fp32, ffn_ms, gflops, wait

Mode = Literal["paper", "fp32", "fast", "fp8", "int8"]
MODES: tuple[Mode, ...] = ("paper", "fp32", "fast", "fp8", "int8")
Say = Callable[[str], None]


@dataclass(frozen=True)
class Row:
    """One measurement."""

    mode: str
    k: int
    batch: int
    size: int
    gflops: float
    """One pair, by the paper's counting."""
    pairs_per_s: float
    speedup: float | None
    """Over k = C of the same mode, batch and size; None where that was not measured."""
    over_fp32: float | None
    """Over `paper` at k = C: the plain model, eager; None where that was not measured."""
    ffn_ms: float
    """All feed-forward layers, per pair; the engine gathers beside the attention, not in it."""
    memory_gb: float | None
    """Peak of the device's memory, weights included; None on a CPU."""
    first_call_s: float
    """The first batch: compilation and recording."""


@dataclass(frozen=True)
class Reference:
    """An encoder that is not ours, on the same images at the size that our encoder sees."""

    name: str
    batch: int
    size: int
    pairs_per_s: float


@dataclass
class Report:
    """A whole benchmark."""

    rows: list[Row] = field(default_factory=list)
    reference: list[Reference] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    """What was asked for and not measured, each with its reason."""


@dataclass(frozen=True)
class Protocol:
    """How many batches run."""

    warmup: int = 5
    measured: int = 20


def arithmetic(mode: Mode) -> AbstractContextManager[None]:
    """How a mode computes: `paper` and `fp32` without TF32, the engine as its users have it.

    What the benchmark compiles is then what they find in the cache.
    """
    return exact_fp32() if mode in ("paper", "fp32") else nullcontext()


def run(
    config: Config,
    *,
    modes: Sequence[Mode],
    budgets: Sequence[int],
    shapes: Sequence[tuple[int, int]],
    device: torch.device,
    protocol: Protocol,
    reference: bool | Sequence[str] = True,
    say: Say = lambda _: None,
    plain: AdaDINO | None = None,
    **engine: bool,
) -> Report:
    """Measure every mode and budget at every shape.

    Args:
        config: The model; its weights are random, speed does not depend on them.
        modes: Which modes.
        budgets: Values of k; the full budget gives the speed-ups their base.
        shapes: (batch, side of the input in pixels).
        device: Where.
        protocol: How many batches.
        reference: Measure transformers' encoder, too; or only the ones of these names.
        say: Told what is being measured.
        plain: A model of that configuration, if there is one already.
        engine: `compile` and `cuda_graph` of `optimize`, if not its defaults.
    """
    report = Report()
    torch.manual_seed(0)
    with device, exact_fp32():
        base = plain or AdaDINO(config).eval()

    def made(mode: Mode) -> Detector:
        return make(base, mode, **engine)

    for batch, size in shapes:
        images = [torch.rand(batch, 3, size, size, device=device) for _ in "ab"]
        encoders = _references(report, config, device) if reference else {}
        if not isinstance(reference, bool):
            encoders = {name: build for name, build in encoders.items() if name in reference}
        if device.type == "cpu":
            _take_turns(report, config, made, modes, budgets, encoders, images, protocol, say)
            continue
        for mode in modes:
            _one_by_one(report, made, mode, budgets, images, protocol, say)
        for name, build in encoders.items():
            _one_reference(report, name, build, config, images, protocol, say)
    fill_speedups(report, config.bscs.chunks)
    return report


class ModeError(ConfigError):
    """A mode that the device cannot run."""


def make(plain: AdaDINO, mode: Mode, **engine: bool) -> Detector:
    """The model of a mode.

    Args:
        plain: The model in fp32.
        mode: Which mode.
        engine: `compile` and `cuda_graph` of `optimize`, if not its defaults.

    Raises:
        ModeError: The device cannot run it; the message says why.
    """
    device = plain.normalize.mean.device.type
    if mode == "paper":
        return plain
    if mode == "fp8" and device != "cuda":
        raise ModeError(f"fp8 needs a GPU; on {device} it would only be emulated")
    if mode == "int8" and device != "cpu":
        raise ModeError(f"int8 is for CPUs; the device is {device}")
    if mode == "fp32":  # the paper's arithmetic: nothing compiled, as in its eager mode
        engine = {"compile": False} | engine
    return optimize(plain, precision="auto" if mode == "fast" else mode, **engine)


def _one_by_one(
    report: Report,
    made: Callable[[Mode], Detector],
    mode: Mode,
    budgets: Sequence[int],
    images: list[Tensor],
    protocol: Protocol,
    say: Say,
) -> None:
    model: Detector | None = None
    batch, size = len(images[0]), images[0].shape[-1]
    for k in budgets:
        say(f"{mode}, k={k}, {batch} pairs of {size} px")
        try:
            model = model or made(mode)
            report.rows.append(_measure(model, mode, k, images, protocol))
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
    """Give back the memory of what is no longer needed; compiled modules are cycles."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _measure(model: Detector, mode: Mode, k: int, images: list[Tensor], protocol: Protocol) -> Row:
    device = images[0].device
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)

    def forward() -> object:
        return model(*images, k=k)

    with torch.inference_mode(), arithmetic(mode):
        first = _seconds(forward, device)
        for _ in range(protocol.warmup - 1):
            forward()
        seconds = _seconds(forward, device, protocol.measured) / protocol.measured
    return _row(model, mode, k, images, seconds, first)


def _take_turns(
    report: Report,
    config: Config,
    made: Callable[[Mode], Detector],
    modes: Sequence[Mode],
    budgets: Sequence[int],
    encoders: dict[str, Callable[[], Encode]],
    images: list[Tensor],
    protocol: Protocol,
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
    for turn in range(protocol.warmup + protocol.measured):
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
    model: Detector, mode: Mode, k: int, images: list[Tensor], seconds: float, first: float
) -> Row:
    batch, size = len(images[0]), images[0].shape[-1]
    cuda = images[0].is_cuda
    memory = torch.cuda.max_memory_allocated(images[0].device) / 1e9 if cuda else None
    with arithmetic(mode):
        layers = _ffn_layers(model)
        forward = partial(without_graph(model), *images, k=k)
        ffn = ffn_ms(layers, forward, images[0].device, times=3 if cuda else 1)
    return Row(
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


def _ffn_layers(model: Detector) -> list[nn.Module]:
    if isinstance(model, Engine):
        return [block.get_submodule("ffn") for block in model.encoder.blocks]
    assert isinstance(model, AdaDINO)
    return [block.get_submodule("ffn") for block in model.encoder.backbone.blocks]


def without_graph(model: Detector) -> Callable[..., object]:
    """A forward pass whose layers can be timed one by one: a replayed graph shows none."""
    return model.unrecorded if isinstance(model, Engine) else model


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
    protocol: Protocol,
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


def fill_speedups(report: Report, full: int) -> None:
    """Set every row's speed-ups, where what they are relative to was measured, too."""
    base = {
        (row.mode, row.batch, row.size): row.pairs_per_s for row in report.rows if row.k == full
    }
    for index, row in enumerate(report.rows):
        mine, plain = (base.get((mode, row.batch, row.size)) for mode in (row.mode, "paper"))
        report.rows[index] = dataclasses.replace(
            row,
            speedup=row.pairs_per_s / mine if mine else None,
            over_fp32=row.pairs_per_s / plain if plain else None,
        )
