"""The inference engine on one GPU: check, then measure, the most important first.

    python benchmarks/engine_gpu.py [--budget SECONDS] [--out DIR] [--steps check,fast,...]
                                    [--model DIR --data DIR] [--preset vitl16] [--batch 16]
    python benchmarks/engine_gpu.py --device cpu --preset tiny --batch 2    # every line, no figures

A step that fails prints the end of its traceback and the others go on, in a new process if the
device is no longer usable. Every row is in DIR/engine.json as soon as it is known; benchmark.md,
.csv and .png are those of `adadino benchmark`. When the budget is spent the remaining steps are
named and left out.
"""

from __future__ import annotations

import argparse
import dataclasses
import faulthandler
import itertools
import math
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import engine_checks
import engine_parts
import torch
from adadino.engine.beside import Beside
from engine_bench import Bench, Rows, rounded
from engine_checks import changed
from engine_first import first, first_child
from engine_profile import paper_profile, profile
from torch.nn.attention import SDPBackend

from adadino.benchmark import modes, report
from adadino.benchmark import run as benchmark
from adadino.benchmark.agreement import agree
from adadino.benchmark.cost import exact_fp32, gflops, wait
from adadino.benchmark.measured import Protocol, Report, Row
from adadino.engine import ffn, optimize
from adadino.engine.adapter import Adapter
from adadino.engine.ops import attention, gather, select

BATCHES, SIDES = (1, 2, 4, 8, 16, 32, 64), (256, 512, 1024, 2048, 4096)
"""Of the sweeps."""
LONG = 2048
"""A pair of 4096 takes half a minute, nearly all of it attention over 262,144 tokens."""


# --- the steps ---


def check(b: Bench) -> Rows:
    """Every kernel, then the engine without the compiler."""
    backbone = b.config.backbone
    shape = backbone.dim, b.config.cgla_hidden, backbone.heads
    yield from engine_checks.check_kernels(b.device, *shape)
    yield from engine_checks.check_engines(b.device, b.args.preset, b.args.size)


def fast(b: Bench) -> Rows:
    """bf16: the compiled engine against the model, then its speed."""
    began = time.perf_counter()
    size = b.args.size, b.args.size
    row = engine_checks.attempt(
        "engine as it is meant, bf16",
        lambda: engine_checks.check_engine(b.model(), "bf16", batch=b.args.batch, size=size),
    )
    yield {**row, "seconds with compilation": round(time.perf_counter() - began, 1)}
    b.free()
    yield from b.cells("fast", [b.full, 6], b.args.batch, b.args.size, b.args.protocol)


def reference(b: Bench) -> Rows:
    """The encoder of transformers alone, in the same run."""
    for name in ("bf16 compiled", "bf16 eager", "fp32 eager"):
        began = time.perf_counter()
        found = benchmark.run(
            b.config,
            modes=[],
            budgets=[],
            shapes=[(b.args.batch, b.args.size)],
            device=b.device,
            protocol=Protocol(2, 5) if name == "fp32 eager" else b.args.protocol,
            reference=[name],
            plain=b.model(),
        )
        b.report.reference += found.reference
        b.report.skipped += found.skipped
        spent = round(time.perf_counter() - began, 1)
        rows = [rounded(dataclasses.asdict(one)) for one in found.reference]
        yield from ({**row, "seconds": spent} for row in rows)
        yield from ({"name": name, "why": reason} for reason in found.skipped)


def fp8(b: Bench) -> Rows:
    """The frozen weights in eight bits; on a CPU int8 takes the place."""
    mode = "fp8" if b.cuda else "int8"
    yield from b.cells(mode, [b.full, 6], b.args.batch, b.args.size, b.args.protocol)


def budgets(b: Bench) -> Rows:
    """bf16 at the other budgets: nothing is compiled again."""
    yield from b.cells("fast", [10, 8, 4], b.args.batch, b.args.size, b.args.protocol)


def variants(b: Bench) -> Rows:
    """k=6 with one thing done another way; attention also where it weighs less."""
    cases = {
        "as it is": (nullcontext(), {}, [6]),
        "PyTorch's policy and gather": (choice_by_pytorch(), {}, [6]),
        "cuDNN's attention": (changed(attention, "MOST", 0), {}, [6, b.full]),
        "CGLA on one stream": (cgla_on_one_stream(), {}, [6, b.full]),
        "as it is, again": (nullcontext(), {}, [6, b.full]),
        "not compiled, as in scenes": (nullcontext(), {"compile": False}, [6]),
        "flash attention first": (flash_first(), {}, [6]),
        "GELU in a kernel": (changed(ffn, "EPILOGUE", False), {}, [6]),
        "cuDNN tries its algorithms": (changed(torch.backends.cudnn, "benchmark", True), {}, [6]),
    }
    for name, (change, way, budgets) in cases.items():
        if b.left() < 0:
            yield {"variant": name, "why": "left out: the budget is spent"}
            continue
        with change:
            found = benchmark.run(
                b.config,
                modes=["fast"],
                budgets=budgets,
                shapes=[(b.args.batch, b.args.size)],
                device=b.device,
                protocol=b.args.protocol,
                reference=False,
                plain=b.model(),
                **{**b.way, **way},
            )
        speeds = {f"k={row.k}": round(row.pairs_per_s, 2) for row in found.rows}
        yield {"variant": name, "pairs_per_s": speeds, "skipped": found.skipped}


@contextmanager
def choice_by_pytorch() -> Iterator[None]:
    """Policy and gather without our kernels."""
    with changed(select, "on_gpu", lambda _: False), changed(gather, "on_gpu", lambda _: False):
        yield


@contextmanager
def cgla_on_one_stream() -> Iterator[None]:
    """Nothing of CGLA beside the rest of it."""
    forward, alone = Adapter.forward, Beside(torch.device("cpu"))

    def one_stream(self: Adapter, *args: object) -> object:
        return forward(self, *args[:-1], alone)

    with changed(Adapter, "forward", one_stream):
        yield


@contextmanager
def flash_first() -> Iterator[None]:
    """PyTorch's attention, its kernels in another order of preference."""
    order = sorted(attention.BACKENDS, key=lambda one: one != SDPBackend.FLASH_ATTENTION)
    with changed(attention, "MOST", 0), changed(attention, "BACKENDS", order):
        yield


def batch1(b: Bench) -> Rows:
    """The latency of one pair."""
    yield from b.cells("fast", [6], 1, b.args.size, b.args.protocol)
    images = [torch.rand(1, 3, b.args.size, b.args.size, device=b.device) for _ in "ab"]
    ways = {
        "as it is": nullcontext(),
        "PyTorch's policy and gather": choice_by_pytorch(),
        "CGLA on one stream": cgla_on_one_stream(),
    }
    for name, change in ways.items():
        with change:
            made = modes.make(b.model(), "fast", **b.way)
            taken = []
            for _ in range(5 + (50 if b.cuda else 2)):
                began = time.perf_counter()
                made(*images, k=6)
                wait(b.device)
                taken.append(1e3 * (time.perf_counter() - began))
        quartiles = (round(q, 3) for q in statistics.quantiles(taken[5:], n=4))
        names = ("ms, first quartile", "ms, median", "ms, third quartile")
        yield {"variant": name, **dict(zip(names, quartiles, strict=True))}


def agreement(b: Bench) -> Rows:
    """bf16 and fp8 against fp32, a trained model on real tiles."""
    if b.args.model is None or b.args.data is None:
        yield {"why": "left out: give --model and --data"}
        return
    from adadino.checkpoint import load
    from adadino.data.folder import PairFolder
    from adadino.evaluation import same_size

    model = load(b.args.model, device=b.device).eval()
    data = PairFolder(b.args.data, b.args.split)
    models = {"fp32": model}
    for precision in ("bf16", "fp8"):
        # Not compiled: another size of model, another minute; the arithmetic is the same.
        models[precision] = optimize(model, precision=precision, compile=False)
    starts = range(0, min(len(data), b.args.pairs), b.args.batch)
    batches = itertools.chain.from_iterable(
        same_size(data, range(start, min(start + b.args.batch, len(data)))) for start in starts
    )
    with exact_fp32():
        for one in agree(models, batches):
            yield {**dataclasses.asdict(one), "f1": round(one.f1, 5)}


def paper(b: Bench) -> Rows:
    """The paper's protocol: fp32, TF32 off; the model eager, and the engine not compiled."""
    slow = b.args.batch * 10 * 25 / 32  # seconds of 10 cells, 25 batches, about 32 pairs/s
    protocol = b.args.protocol if b.left() > 1.2 * slow else Protocol(2, 6)
    for mode in ("paper", "fp32"):
        yield from b.cells(mode, [b.full, 6, 10, 8, 4], b.args.batch, b.args.size, protocol)


def parts(b: Bench) -> Rows:
    """The device's ceilings, and every kernel and product alone."""
    grid = b.grid()
    yield from engine_parts.ceilings(b.device, 8192 if b.cuda else 256)
    yield from engine_parts.kernels(b.config, b.args.batch, grid, b.device)
    yield from engine_parts.products(b.config, b.args.batch, grid, b.device)


def sweeps(b: Bench) -> Rows:
    """How cost grows with the batch, and with the side at a constant number of pixels.

    Not compiled, as in scenes: every shape would be compiled anew.
    """
    size, pixels = b.args.size, b.args.batch * b.args.size**2
    batches, sides = (BATCHES, SIDES) if b.cuda else ((1, 3), (size, 2 * size))
    shapes = {
        "batch": [(batch, size) for batch in batches],
        "size": [(max(1, pixels // side**2), side) for side in sides],
    }
    for name, several in shapes.items():
        swept = Report()
        for batch, side in several:
            found = one_pass(b, batch, side) if side > LONG else swept_cell(b, batch, side)
            swept.rows += found.rows
            yield from (rounded(dataclasses.asdict(row)) for row in found.rows)
            yield from ({"why": reason} for reason in found.skipped)
            b.free()
            if b.left() < 0:
                yield {"why": f"left out after {(batch, side)}: the budget is spent"}
                break
        if len(swept.rows) > 1:
            report.plot(swept, b.args.out / f"{name}.png", title=b.args.preset, sweep=name)


def swept_cell(b: Bench, batch: int, side: int) -> Report:
    """A point of a sweep, as `adadino benchmark` measures it."""
    return benchmark.run(
        b.config,
        modes=["fast"],
        budgets=[6],
        shapes=[(batch, side)],
        device=b.device,
        protocol=Protocol(2, 5) if b.cuda else b.args.protocol,
        reference=False,
        plain=b.model(),
        compile=False,
    )


def one_pass(b: Bench, batch: int, side: int) -> Report:
    """A point that takes half a minute: its only pass counts, and its FFN is not taken apart."""
    made = modes.make(b.model(), "fast", compile=False, cuda_graph=False)
    images = [torch.rand(batch, 3, side, side, device=b.device) for _ in "ab"]
    if b.cuda:
        torch.cuda.reset_peak_memory_stats()
    wait(b.device)
    began = time.perf_counter()
    made(*images, k=6)
    wait(b.device)
    spent = time.perf_counter() - began
    memory = torch.cuda.max_memory_allocated() / 1e9 if b.cuda else None
    cost = gflops(b.config, k=6, size=side)
    row = Row("fast", 6, batch, side, cost, batch / spent, None, None, math.nan, memory, spent)
    return Report(rows=[row])


STEPS: dict[str, Callable[[Bench], Rows]] = {
    "check": check,
    "fast": fast,
    "reference": reference,
    "profile": profile,
    "fp8": fp8,
    "budgets": budgets,
    "variants": variants,
    "batch1": batch1,
    "agreement": agreement,
    "paper": paper,
    "paper-profile": paper_profile,
    "first": first,
    "parts": parts,
    "profile8": lambda b: profile(b, "fp8" if b.cuda else "int8"),
    "sweeps": sweeps,
}
"""In the order of importance."""


def run_steps(b: Bench) -> None:
    """Each step on its own; after an error that ruins the device, the rest in a new process."""
    names = [name for name in STEPS if name in b.args.steps.split(",")]
    for index, name in enumerate(names):
        if b.left() < 0:
            b.add("left out", {"step": name, "why": "the budget is spent"})
            continue
        began = time.perf_counter()
        try:
            for row in STEPS[name](b):
                b.add(name, row)
        except Exception as error:
            traceback.print_exc(limit=-8)
            text = (str(error).splitlines() or [""])[0][:200]
            b.add("failed", {"step": name, "why": f"{type(error).__name__}: {text}"})
        b.free()
        spent = time.perf_counter() - began
        print(f"== {name}: {spent:.1f} s, {b.left():.0f} s left", flush=True)
        if not b.usable():
            rest = ",".join(names[index + 1 :])
            print(f"the device is no longer usable here; {rest or 'nothing'} in a new process")
            if rest:
                again = ["--steps", rest, "--budget", str(int(b.left())), "--go-on"]
                subprocess.run([sys.executable, __file__, *b.args.given, *again], check=False)
            return


def finish(b: Bench) -> None:
    """The tables of `adadino benchmark`, and what went wrong."""
    if b.report.rows:
        device = torch.cuda.get_device_name() if b.cuda else "CPU"
        report.write(
            b.report, b.args.out, title=f"{b.args.preset} on {device}",
            published=b.args.preset == "vitl16", sweep=None,
        )  # fmt: skip
        for line in report.cells(b.report, published=b.args.preset == "vitl16"):
            print("  ".join(cell.rjust(8) for cell in line))
        for line in report.reference_cells(b.report):
            print("  ".join(cell.rjust(8) for cell in line))
    wrong = [row for row in b.found.get("check", []) if not row.get("ok", True)]
    for row in [*wrong, *b.found.get("failed", []), *b.found.get("left out", [])]:
        print("!!", row)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", default=",".join(STEPS))
    parser.add_argument("--budget", type=float, default=540, help="seconds")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--preset", default="vitl16")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--size", type=int, help="side in pixels; 256, on a CPU 64")
    parser.add_argument("--model", help="a trained model, for the agreement")
    parser.add_argument("--data", help="a folder of labelled pairs, for the agreement")
    parser.add_argument("--split", help="a split of that folder")
    parser.add_argument("--pairs", type=int, default=512, help="at most so many of them")
    parser.add_argument("--out", type=Path, default=Path("engine-gpu"))
    parser.add_argument("--first", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--go-on", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.given = [part for part in sys.argv[1:] if part not in ("--first", "--go-on")]
    cuda = torch.device(args.device).type == "cuda"
    args.size = args.size or (256 if cuda else 64)
    args.protocol = Protocol() if cuda else Protocol(1, 1)
    args.out.mkdir(parents=True, exist_ok=True)
    bench = Bench(args)
    if args.first:
        first_child(bench)
        return
    faulthandler.dump_traceback_later(args.budget + 120, exit=True)  # something hangs
    if cuda:
        name = torch.cuda.get_device_name()
        bench.add("facts", {"device": name, "torch": torch.__version__, "cuda": torch.version.cuda})
    try:
        run_steps(bench)
    finally:
        finish(bench)


if __name__ == "__main__":
    main()
