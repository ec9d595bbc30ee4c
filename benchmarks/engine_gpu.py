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
import gc
import importlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import engine_checks
import engine_parts
import torch
from engine_checks import changed
from torch.nn.attention import SDPBackend

from adadino.config import preset
from adadino.engine import benchmark, ffn, optimize, report
from adadino.engine.agreement import agree
from adadino.engine.benchmark import Protocol, Report
from adadino.engine.cache import keep_compiled
from adadino.engine.kernels import attention, gather, has_triton, select
from adadino.model.adadino import AdaDINO
from adadino.profiling import exact_fp32, ffn_ms, wait

Rows = Iterator[dict]
BATCHES, SIDES = (2, 4, 8, 32, 64), (512, 1024, 2048)
"""Of the sweeps; 1 and 16 pairs of 256 pixels are measured before."""
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
            benchmark.fill_speedups(self.report, self.full)
            rows = self.report.rows[len(self.report.rows) - len(found.rows) :]
            yield from (
                {**_short(dataclasses.asdict(row)), "ms_per_pair": round(1e3 / row.pairs_per_s, 3),
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


def _short(row: dict) -> dict:
    return {name: round(v, 3) if isinstance(v, float) else v for name, v in row.items()}


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
        rows = [_short(dataclasses.asdict(one)) for one in found.reference]
        yield from ({**row, "seconds": spent} for row in rows)
        yield from ({"name": name, "why": reason} for reason in found.skipped)


GROUPS = {
    "compiled": ("triton_",),
    "attention": ("sdpa", "flash", "fmha", "attention"),
    "conv": ("conv", "fprop", "depthwise", "dgrad"),
    "GEMM": ("gemm", "gemv", "nvjet", "cutlass", "xmma", "cublas", "splitk", "_mm", "::mm", "::bmm",
             "addmm"),
    "engine's kernels": ("_layer_norm", "_pair_norm", "_rope", "_activate", "_group_affine",
                         "_affine_silu", "_context", "_gated_residual", "_slices", "_decide",
                         "_gather"),
}  # fmt: skip
"""Kernels by what is in their names; the first that fits counts."""
PLAIN_GROUPS = {
    "turned over for cuDNN": ("nchwto", "nhwcto"),
    "attention": GROUPS["attention"],
    "conv": GROUPS["conv"],
    "GEMM": GROUPS["GEMM"],
    "GELU": ("gelu",),
    "norms": ("layer_norm", "group_norm", "groupnorm", "rowwisemoments", "batch_norm", "bn_fw"),
    "cat and copies": ("catarray", "copy"),
    "resizing": ("upsample",),
    "gather": ("index", "gather"),
    "reductions": ("reduce", "softmax", "topk", "sort"),
    "elementwise": ("elementwise", "pointwise"),
}
"""The same for the plain model, where every operation is a kernel of PyTorch's."""


def group_of(kernel: str, mode: str = "fast") -> str:
    name, groups = kernel.lower(), PLAIN_GROUPS if mode == "paper" else GROUPS
    fits = (group for group, parts in groups.items() if any(part in name for part in parts))
    return next(fits, "other")


def profile(b: Bench, mode: str = "fast", shown: int = 12) -> Rows:
    """Device time by group and by kernel; without a graph, so that every kernel has its name."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as record

    made = benchmark.make(b.model(), mode, **{**b.way, "cuda_graph": False})
    run = benchmark.without_graph(made)
    images = [torch.rand(b.args.batch, 3, b.args.size, b.args.size, device=b.device) for _ in "ab"]
    kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if b.cuda else [])]
    for k in (b.full, 6):
        with torch.no_grad(), benchmark.arithmetic(mode):
            for _ in range(3):
                run(*images, k=k)
            wait(b.device)
            with record(activities=kinds) as trace:
                run(*images, k=k)
                wait(b.device)
        averages = trace.key_averages()
        name = "self_device_time_total" if b.cuda else "self_cpu_time_total"
        spent = sorted(((getattr(e, name), e) for e in averages), key=lambda one: -one[0])
        spent = [(us, e) for us, e in spent if us > 0 and (not b.cuda or _on_device(e))]
        total = sum(us for us, _ in spent)
        groups: dict[str, float] = {}
        for us, event in spent:
            group = group_of(event.key, mode)
            groups[group] = groups.get(group, 0) + us
        yield {
            "what": f"{mode} k={k}",
            "ms": round(total / 1e3, 2),
            **{g: round(us / 1e3, 2) for g, us in sorted(groups.items(), key=lambda one: -one[1])},
        }
        with (b.args.out / "profile.txt").open("a") as text:
            print(f"# {mode}, k={k}: {total / 1e3:.2f} ms of device time", file=text)
            for us, e in spent[:80]:
                group = group_of(e.key, mode)
                print(f"{us / 1e3:9.3f} ms {e.count:5d} x  [{group}] {e.key}", file=text)
        for us, e in spent[:shown]:
            yield {"kernel": e.key[:60], "ms": round(us / 1e3, 3), "calls": e.count}


def paper_profile(b: Bench) -> Rows:
    """Where the plain model in fp32 spends its time: by part, by kind of kernel, by kernel."""
    model = b.model()
    images = [torch.rand(b.args.batch, 3, b.args.size, b.args.size, device=b.device) for _ in "ab"]
    blocks = list(model.encoder.backbone.blocks)
    parts = {
        "FFN": [block.ffn for block in blocks],
        "attention": [block.attn for block in blocks],
        "norms of the blocks": [n for block in blocks for n in (block.norm1, block.norm2)],
        "policies": list(model.encoder.bscs.policies),
        "CGLA": list(model.encoder.cgla.values()),
        "  its f_rel": [one.f_rel for one in model.encoder.cgla.values()],
        "  its f_loc": [one.f_loc for one in model.encoder.cgla.values()],
        "neck": [model.neck],
        "decoder": [model.decoder],
        "encoder": [model.encoder],
        "all": [model],
    }
    with exact_fp32():
        for k in (b.full, 6):
            run = lambda k=k: model(*images, k=k)  # noqa: E731
            ffn_ms([model], run, b.device, times=1)  # libraries choose their algorithms
            spent = {name: ffn_ms(some, run, b.device, times=1) for name, some in parts.items()}
            yield {"what": f"paper k={k}, ms", **_short(spent)}
        yield from engine_parts.plain_attention(b.config, b.args.batch, b.grid(), b.device)
    yield from profile(b, "paper", shown=25)


def _on_device(event: object) -> bool:
    """A kernel: neither the operator that launched it, nor a mark around several of them."""
    there = getattr(event, "device_type", None) == torch.autograd.DeviceType.CUDA
    return there and not getattr(event, "is_user_annotation", False)


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
        "our policy and gather": (choice_by_kernels(), {}, [6]),
        "our policy": (changed(select, "FUSED", True), {}, [6]),
        "our gather": (changed(gather, "FUSED", True), {}, [6]),
        "our attention": (changed(attention, "FUSED", True), {}, [6, b.full]),
        "pooling reads ahead": (reading_ahead(), {}, [6]),
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
def choice_by_kernels() -> Iterator[None]:
    """Policy and gather by our kernels."""
    with changed(select, "FUSED", True), changed(gather, "FUSED", True):
        yield


def reading_ahead() -> AbstractContextManager[None]:
    """The pooled LayerNorm with its next tokens under way."""
    if not has_triton():
        return nullcontext()
    from adadino.engine.gpu import norm

    return changed(norm, "POOL_AHEAD", True)


def flash_first() -> AbstractContextManager[None]:
    """The attention kernels in another order of preference."""
    order = sorted(attention.BACKENDS, key=lambda one: one != SDPBackend.FLASH_ATTENTION)
    return changed(attention, "BACKENDS", order)


def batch1(b: Bench) -> Rows:
    """The latency of one pair."""
    yield from b.cells("fast", [6], 1, b.args.size, b.args.protocol)
    images = [torch.rand(1, 3, b.args.size, b.args.size, device=b.device) for _ in "ab"]
    ways = {"as it is": nullcontext(), "our policy and gather": choice_by_kernels()}
    for name, change in ways.items():
        with change:
            made = benchmark.make(b.model(), "fast", **b.way)
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
    from adadino.data.folder import PairFolder
    from adadino.evaluation import same_size
    from adadino.model.checkpoint import load

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
    """The paper's protocol: fp32, TF32 off, eager."""
    slow = b.args.batch * 5 * 25 / 28  # seconds of 5 budgets, 25 batches, about 28 pairs/s
    protocol = b.args.protocol if b.left() > 1.2 * slow else Protocol(2, 6)
    yield from b.cells("paper", [b.full, 6, 10, 8, 4], b.args.batch, b.args.size, protocol)


def first(b: Bench) -> Rows:
    """The first call of the first process, with an empty cache, then of the next one."""
    with tempfile.TemporaryDirectory() as cache:
        for name in ("cold", "from the cache"):
            if b.left() < 20:
                yield {"first call": name, "why": "left out: the budget is spent"}
                continue
            environment = {**os.environ, "ADADINO_CACHE": cache}
            for variable in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
                environment.pop(variable, None)
            command = [sys.executable, __file__, "--first", *b.args.given]
            began = time.perf_counter()
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, check=False,
                timeout=max(b.left() + 30, 60),
            )  # fmt: skip
            if done.returncode:
                print(done.stderr[-2000:], flush=True)
                yield {"first call": name, "why": f"exit status {done.returncode}"}
                continue
            row = json.loads(done.stdout.splitlines()[-1])
            yield {"first call": name, **row, "process_s": round(time.perf_counter() - began, 1)}


def first_child(b: Bench) -> None:
    """The other side of `first`: one engine and its first calls, as JSON on the last line.

    A first call is `unrecorded_s` and `record_s` together. `pixels_s`, `encoder_s` and `decoder_s`
    are parts of the former; `trace_s`, `guards_s` and `load_s` (or compile) are the compiler's
    parts of pixels and decoder.
    """
    model = b.model()
    wait(b.device)
    images = [torch.rand(b.args.batch, 3, b.args.size, b.args.size, device=b.device) for _ in "ab"]
    times = {"began": time.perf_counter()}

    def passed(name: str) -> None:
        wait(b.device)
        times[name] = time.perf_counter()

    keep_compiled()  # as `optimize` does, before the compiler settles on a folder of its own
    importlib.import_module("torch._inductor.compile_fx")
    passed("import_s")
    made = benchmark.make(model, "fast", compile=True)
    passed("fold_s")
    hooks = [
        made.encoder.register_forward_pre_hook(lambda *_: passed("pixels_s")),
        made.encoder.register_forward_hook(lambda *_: passed("encoder_s")),
    ]
    made.unrecorded(*images, k=6)
    passed("decoder_s")
    for hook in hooks:
        hook.remove()
    made(*images, k=6)
    passed("record_s")
    made(*images, k=6)
    passed("second_call_s")
    names = list(times)
    row = {n: times[n] - times[m] for m, n in itertools.pairwise(names)}
    row["unrecorded_s"] = sum(row[n] for n in ("pixels_s", "encoder_s", "decoder_s"))
    utils = importlib.import_module("torch._dynamo.utils")
    for name, phase in (
        ("trace_s", "bytecode_tracing"),
        ("guards_s", "build_guards"),
        ("load_s", "OutputGraph.call_user_compiler"),
    ):
        row[name] = sum(utils.compilation_time_metrics.get(phase, ()))
    found = {n: dict(utils.counters[n]) for n in ("aot_autograd", "inductor")}
    hits = {
        f"{name}: {key}": count
        for name, counts in found.items()
        for key, count in counts.items()
        if key.endswith(("cache_hit", "cache_miss", "cache_bypass"))
    }
    print(json.dumps({n: round(t, 2) for n, t in row.items()} | hits))


def parts(b: Bench) -> Rows:
    """The device's ceilings, and every kernel and product alone."""
    grid = b.grid()
    yield from engine_parts.ceilings(b.device, 8192 if b.cuda else 256)
    yield from engine_parts.kernels(b.config, b.args.batch, grid, b.device)
    yield from engine_parts.products(b.config, b.args.batch, grid, b.device)


def sweeps(b: Bench) -> Rows:
    """How cost grows with the batch, and with the side at a constant number of pixels."""
    size, pixels = b.args.size, b.args.batch * b.args.size**2
    protocol = Protocol(2, 5) if b.cuda else b.args.protocol
    batches, sides = (BATCHES, SIDES) if b.cuda else ((3,), (2 * size,))
    for batch in batches:
        yield from b.cells("fast", [6], batch, size, protocol)
    for side in sides:
        yield from b.cells("fast", [6], max(1, pixels // side**2), side, protocol)


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


def sweep_rows(b: Bench, name: str) -> list[benchmark.Row]:
    """The rows of one sweep: bf16 at k=6, one side and any batch, or one number of pixels."""
    rows = [row for row in b.report.rows if (row.mode, row.k) == ("fast", 6)]
    if name == "batch":
        return [row for row in rows if row.size == b.args.size]
    pixels = b.args.batch * b.args.size**2
    return [row for row in rows if row.batch == max(1, pixels // row.size**2)]


def finish(b: Bench) -> None:
    """The tables of `adadino benchmark`, and what went wrong."""
    if b.report.rows:
        device = torch.cuda.get_device_name() if b.cuda else "CPU"
        report.write(
            b.report, b.args.out, title=f"{b.args.preset} on {device}",
            published=b.args.preset == "vitl16", sweep=None,
        )  # fmt: skip
        for name in ("batch", "size"):
            swept = sweep_rows(b, name)
            if len(swept) > 1:
                path = b.args.out / f"{name}.png"
                report.plot(Report(rows=swept), path, title=b.args.preset, sweep=name)
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
