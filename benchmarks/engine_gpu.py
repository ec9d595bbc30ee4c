"""The inference engine on one GPU: check, then measure, against predictions made beforehand.

    python benchmarks/engine_gpu.py [--steps ceilings,check,kernels,products,engine,profile]
                                    [--preset vitl16] [--batch 16] [--k 16,6] [--out DIR]

`check` runs every kernel and the whole engine on fresh random inputs, outputs poisoned first,
against the plain operations in float32 on the CPU; nothing is timed before it passes. Each figure
is a median of CUDA-event timings; `floor` is the time that bytes or operations alone would take at
4.0 TB/s and 790 (bf16) or 1500 (fp8) TFLOP/s. Short tables go to standard output, everything to
JSON and text files in the folder.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_leaves, tree_map

from adadino.config import preset
from adadino.engine import block, ffn, optimize
from adadino.engine.kernels import activation, local, norm, residual, rope
from adadino.engine.rows import product, quantize
from adadino.model.adadino import AdaDINO
from adadino.model.backbone import rope_tables

BYTES, BF16, FP8 = 4.0e12, 790e12, 1500e12
STEPS = ("ceilings", "check", "kernels", "products", "engine", "profile")
half = torch.bfloat16


def ms(run: Callable[[], object]) -> float:
    from triton.testing import do_bench

    return float(do_bench(run, warmup=20, rep=100, return_mode="median"))


def randn(*shape: int, dtype: torch.dtype = half) -> Tensor:
    return torch.randn(shape, device="cuda").to(dtype)


# --- ceilings ---


def ceilings() -> list[dict]:
    big = torch.empty(2**32, dtype=torch.uint8, device="cuda").random_()
    copy = torch.empty_like(big)
    a, b = randn(8192, 8192), randn(8192, 8192)
    bandwidth = 2 * big.numel() / ms(lambda: copy.copy_(big)) / 1e9
    rate = 2 * 8192**3 / ms(lambda: a @ b) / 1e9
    left, right = quantize(a, "fp8"), quantize(b, "fp8")
    fp8 = 2 * 8192**3 / ms(lambda: product(left, right, None, half)) / 1e9
    return [
        {"what": "copy, TB/s", "measured": round(bandwidth, 2)},
        {"what": "bf16 8192^3, TFLOP/s", "measured": round(rate)},
        {"what": "fp8 row-wise 8192^3, TFLOP/s", "measured": round(fp8)},
    ]


# --- correctness ---


@contextmanager
def poisoned() -> Iterator[None]:
    """PyTorch fills what `torch.empty` gives with NaN while it is asked to be deterministic."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def off(got: Tensor, expected: Tensor) -> float:
    got = got.double().cpu()
    assert got.isfinite().all(), "an element is NaN: nobody wrote it"
    expected = expected.double().cpu()
    return float((got - expected).norm() / expected.norm())


def cpu(value: object) -> object:
    if isinstance(value, Tensor):
        return value.detach().cpu().float().clone()
    return value


def compare(name: str, run: Callable, *args: object, within: float, **given: object) -> dict:
    """The dispatched operation on the GPU against the plain one on the CPU in float32."""
    there = tree_map(cpu, (args, given))  # before the run: some work in place
    with poisoned():
        got = run(*args, **given)
    expected = run(*there[0], **there[1])
    flat = [t for t in tree_leaves(got) if isinstance(t, Tensor)]
    other = [t for t in tree_leaves(expected) if isinstance(t, Tensor)]
    error = 0.0
    for one, two in zip(flat, other, strict=True):
        if one.ndim == 3 and one.shape != two.shape:  # parts: only their sum is defined
            one, two = one.sum(1), two.sum(1)
        if one.dtype == torch.float8_e4m3fn:
            same = one.float().cpu() == two.float()
            assert same.float().mean() > 0.98, f"{name}: e4m3 differs at {1 - same.float().mean()}"
            continue
        error = max(error, off(one, two))
    assert error < within, f"{name}: {error:.2e} is not within {within:.0e}"
    return {"check": name, "error": f"{error:.1e}", "within": within}


def check_kernels() -> list[dict]:
    rows = []
    layer = nn.GroupNorm(8, 512).cuda()
    nn.init.normal_(layer.weight)
    nn.init.normal_(layer.bias)

    def groups(x: Tensor, weight: Tensor, bias: Tensor) -> object:
        norm_ = nn.GroupNorm(8, 512)
        norm_.weight, norm_.bias = nn.Parameter(weight), nn.Parameter(bias)
        return local.group_affine(x, norm_)

    for dtype, within in ((torch.float32, 1e-5), (half, 1e-2)):
        D, B, h = 1024, 3, 14
        x = randn(2 * B, 5 + h * h, D, dtype=dtype) * 2 + 1
        vectors = {n: randn(D, dtype=torch.float32) for n in ("shift", "weight", "bias")}
        z = randn(B, h * h, 512, dtype=dtype) + 2
        affine = tuple(randn(B, 512, dtype=torch.float32) for _ in "ab")
        tables = tuple(t.cuda() for t in rope_tables(h, h, prefix=5, head_dim=64, theta=100.0))
        spatial = randn(512, dtype=torch.float32) / 20, randn(1, dtype=torch.float32)
        gates = {
            "gate_spatial": torch.rand(B, h * h, device="cuda"),
            "gate_channel": torch.rand(B, D, device="cuda"),
            "gamma_self": randn(D, dtype=torch.float32),
            "gamma_delta": randn(D, dtype=torch.float32),
            "features": randn(B, h * h, 2, D, dtype=dtype),
        }
        maps = randn(B, h * h, 2, D, dtype=dtype), randn(B, h * h, D, dtype=dtype)

        def residual_(t: Tensor, *rest: Tensor, **given: object) -> object:
            return residual.gated_residual_(
                t, *rest, **given
            ), t  # what it returns and what it moved

        for kind in (None, "fp8"):
            given = {**vectors, "eps": 1e-5, "kind": kind}
            tag = f"{dtype}, {kind}"
            rows.append(compare(f"layer_norm {tag}", norm.layer_norm, x, within=within, **given))
            given["prefix"] = 5
            rows.append(compare(f"pooled {tag}", norm.layer_norm_pooled, x, within=within, **given))
            for gated in (0, 96):
                hidden = randn(777, 1536, dtype=dtype) * 2
                given = {"gated": gated, "kind": kind}
                name = f"activate {gated} {tag}"
                rows.append(compare(name, activation.activate, hidden, within=within, **given))
        given = {"prefix": 5, "shift": vectors["shift"]}
        rows.append(compare(f"pair_norm {dtype}", norm.pair_norm, x, within=within, **given))
        qkv = randn(2, 5 + h * h, 3 * D, dtype=dtype)
        rows.append(compare(f"rope {dtype}", rope.rope_, qkv, *tables, within=within, heads=16))
        rows.append(compare(f"groups {dtype}", groups, z, layer.weight, layer.bias, within=within))
        rows.append(compare(f"affine_silu {dtype}", local.affine_silu, z, affine, within=within))
        for after in ("none", "gelu"):
            maps4 = randn(B, h, 17, 200, dtype=dtype), randn(9, 200, dtype=dtype)
            name = f"depthwise {after} {dtype}"
            rows.append(compare(name, local.depthwise, *maps4, within=within, after=after))
        rows.append(compare(f"context {dtype}", local.context, z, affine, *spatial, within=within))
        for sign in (-1, 1):
            given = {**gates, "sign": sign}
            rows.append(
                compare(f"residual {sign} {dtype}", residual_, x, *maps, within=within, **given)
            )
    return rows


def lively(config) -> AdaDINO:
    """A random model whose every part moves the logits."""
    with torch.device("cuda"):
        model = AdaDINO(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim < 2:
                parameter.add_(torch.randn_like(parameter) * 0.1)
            if name.endswith(("ls1", "ls2")):
                parameter.fill_(0.2)
            if name.endswith(("gamma_self", "gamma_delta", "eta")):
                parameter.add_(0.3)
    return model


def check_engine(args: argparse.Namespace) -> list[dict]:
    rows = []
    torch.backends.cudnn.allow_tf32 = False  # the default, which would be the plain model's error
    for name in ("tiny", args.preset):
        config = preset(name)
        model = lively(config)
        images = [torch.rand(2, 3, 200, 256, device="cuda") for _ in "ab"]
        chunks = torch.stack([torch.randperm(16)[:6] for _ in range(config.backbone.depth)]).cuda()
        with torch.no_grad():
            expected = model(*images, chunks=chunks)
        for precision in ("fp32", "bf16", "fp8"):
            engine = optimize(model, precision=precision, compile=False)
            got = engine(*images, chunks=chunks)  # through a graph
            fresh = [torch.rand_like(image) for image in images]
            other = engine(*fresh, chunks=chunks).logits
            again = engine(*images, chunks=chunks)
            with torch.no_grad():
                eager = engine.run(*fresh, chunks, k=6).logits
                free = engine.run(*images, None, k=6)
                torch.cuda.set_sync_debug_mode("error")
                engine.run(*images, None, k=6)
                torch.cuda.set_sync_debug_mode("default")
            assert torch.equal(got.logits, again.logits), "a graph's second answer differs"
            assert off(other, eager) < 1e-3, "a graph does not follow its inputs"
            assert free.scores is not None
            assert free.scores.isfinite().all()
            probability = [o.logits.softmax(1)[:, 1] for o in (got, expected)]
            agree = float(((probability[0] > 0.5) == (probability[1] > 0.5)).float().mean())
            rows.append(
                {
                    "check": f"engine {name} {precision}",
                    "error": f"{off(got.logits, expected.logits):.1e}",
                    "features": f"{off(got.responses.delta, expected.responses.delta):.1e}",
                    "pixels that agree": round(agree, 5),
                }
            )
            limit = {"fp32": 1e-4, "bf16": 0.05, "fp8": 0.15}[precision]
            assert off(got.logits, expected.logits) < limit, rows[-1]
            del engine
        del model
        torch.cuda.empty_cache()
    return rows


# --- timings ---


def entry(name: str, run: Callable, *, bytes_: float = 0, flops: float = 0, rate=BF16) -> dict:
    taken = ms(run)
    floor = 1e3 * max(bytes_ / BYTES, flops / rate)
    row = {"what": name, "us": round(1e3 * taken, 1), "floor_us": round(1e3 * floor, 1)}
    row["TB/s"] = round(bytes_ / taken / 1e9, 2)
    row["TFLOP/s"] = round(flops / taken / 1e9)
    return row


def kernels(args: argparse.Namespace) -> list[dict]:
    config = preset(args.preset)
    b, D, heads = config.backbone, config.backbone.dim, config.backbone.heads
    B, h, H = args.batch, 32, config.cgla_hidden
    N, M = b.prefix + h * h, 2 * B * (b.prefix + h * h)
    tokens, places = M * D * 2, 2 * B * h * h * D * 2  # bytes in bf16
    x = randn(2 * B, N, D)
    vectors = {n: randn(D, dtype=torch.float32) for n in ("shift", "weight", "bias")}
    given = {**vectors, "eps": 1e-5}
    qkv = randn(2 * B, N, 3 * D)
    tables = tuple(t.cuda() for t in rope_tables(h, h, prefix=b.prefix, head_dim=64, theta=100.0))
    z, small = randn(B, h * h, H), B * h * h * H * 2
    affine = tuple(randn(B, H, dtype=torch.float32) for _ in "ab")
    layer = nn.GroupNorm(8, H).cuda()
    both, taps = randn(B, h, h, 2 * D), randn(9, 2 * D)
    conv = taps.t().reshape(-1, 1, 3, 3).contiguous(memory_format=torch.channels_last)
    maps = randn(B, h * h, 2, D), randn(B, h * h, D)
    gates = {
        "gate_spatial": torch.rand(B, h * h, device="cuda"),
        "gate_channel": torch.rand(B, D, device="cuda"),
        "gamma_self": randn(D, dtype=torch.float32) * 1e-3,
        "gamma_delta": randn(D, dtype=torch.float32) * 1e-3,
        "sign": -1,
    }
    runs = {
        "layer_norm": (lambda: norm.layer_norm(x, **given), 2 * tokens),
        "layer_norm -> fp8": (lambda: norm.layer_norm(x, **given, kind="fp8"), 1.5 * tokens),
        "layer_norm + pool": (
            lambda: norm.layer_norm_pooled(x, prefix=b.prefix, **given),
            2 * tokens,
        ),
        "rope": (lambda: rope.rope_(qkv, *tables, heads=heads), 4 * tokens),
        "pair_norm": (
            lambda: norm.pair_norm(x, prefix=b.prefix, shift=vectors["shift"]),
            3 * places,
        ),
        "group_affine, H": (lambda: local.group_affine(z, layer), small),
        "affine_silu, H": (lambda: local.affine_silu(z, affine), 2 * small),
        "context, H": (
            lambda: local.context(z, affine, vectors["shift"][:H], vectors["bias"][:1]),
            2 * small,
        ),
        "depthwise, H": (
            lambda: local.depthwise(z.view(B, h, h, H), taps[:, :H].contiguous()),
            2 * small,
        ),
        "depthwise + gelu, 2D": (lambda: local.depthwise(both, taps, after="gelu"), 2 * places),
        "  the same, cuDNN": (
            lambda: F.gelu(F.conv2d(both.permute(0, 3, 1, 2), conv, padding=1, groups=2 * D)),
            2 * places,
        ),
        "gated_residual": (lambda: residual.gated_residual_(x, *maps, **gates), 3.5 * places),
    }
    for width in (b.ffn, 6 * b.ffn // 16):
        hidden = randn(M, width)
        run = lambda hidden=hidden: activation.activate(hidden, kind="fp8")  # noqa: E731
        runs[f"gelu -> fp8, {width}"] = (run, 3 * hidden.numel())
    return [entry(name, run, bytes_=moved) for name, (run, moved) in runs.items()]


def products(args: argparse.Namespace) -> list[dict]:
    b = preset(args.preset).backbone
    D, heads, N = b.dim, b.heads, b.prefix + 1024
    M = 2 * args.batch * N
    x, residual_ = randn(M, D), randn(M, D)
    rows8 = quantize(x, "fp8")
    rows = []

    def add(name: str, run: Callable, flops: float, rate: float = BF16) -> None:
        rows.append(entry(name, run, flops=flops, rate=rate))

    w, bias = randn(3 * D, D), randn(3 * D)
    add("qkv", lambda: F.linear(x, w, bias), 2 * M * D * 3 * D)
    w8 = quantize(w, "fp8")
    add("qkv fp8", lambda: product(rows8, w8, bias, half), 2 * M * D * 3 * D, FP8)
    proj = randn(D, D)
    add("proj into the tokens", lambda: residual_.addmm_(x, proj), 2 * M * D * D)
    add("proj, then add", lambda: residual_.add_(x @ proj), 2 * M * D * D)
    for width in (b.ffn, 6 * b.ffn // 16):
        flops = 2 * M * D * width
        up, ub, down = randn(width, D), randn(width), randn(width, D)
        hidden = randn(M, width)
        add(
            f"up {width}, GELU epilogue",
            lambda up=up, ub=ub: torch._addmm_activation(ub, x, up.t(), use_gelu=True),
            flops,
        )
        add(
            f"up {width}, GELU kernel",
            lambda up=up, ub=ub: activation.activate(F.linear(x, up, ub)),
            flops,
        )
        up8, down8 = quantize(up, "fp8"), quantize(down.t().contiguous(), "fp8")
        hidden8 = quantize(hidden, "fp8")
        add(
            f"up {width} fp8",
            lambda up8=up8, ub=ub: product(rows8, up8, ub, half),
            flops,
            FP8,
        )
        add(
            f"down {width} into the tokens",
            lambda hidden=hidden, down=down: residual_.addmm_(hidden, down),
            flops,
        )
        turned = down.t().contiguous()
        add(
            f"down {width}, the other layout",
            lambda hidden=hidden, turned=turned: residual_.addmm_(hidden, turned.t()),
            flops,
        )
        add(
            f"down {width} fp8, then add",
            lambda h8=hidden8, d8=down8: residual_.add_(product(h8, d8, None, half)),
            flops,
            FP8,
        )
        residual_.normal_()
    for tokens in (N, N - b.prefix):
        q, k, v = randn(2 * args.batch, tokens, 3, heads, D // heads).permute(2, 0, 3, 1, 4)
        flops = 4 * 2 * args.batch * heads * tokens**2 * (D // heads)
        for backend in (SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION):
            with sdpa_kernel(backend):
                add(
                    f"attention {tokens}, {backend.name.split('_')[0].lower()}",
                    lambda q=q, k=k, v=v: F.scaled_dot_product_attention(q, k, v),
                    flops,
                )
    B, places = args.batch, 1024
    both = randn(B * places, 4 * D)
    w4 = randn(D // 2, 4 * D)
    two = both[:, : 2 * D].contiguous(), both[:, 2 * D :].contiguous()
    halves = w4[:, : 2 * D].contiguous(), w4[:, 2 * D :].t().contiguous()
    add("CGLA 4D, one product", lambda: F.linear(both, w4), 2 * B * places * 4 * D * D // 2)
    add(
        "CGLA 4D, two that add up",
        lambda: F.linear(two[0], halves[0]).addmm_(two[1], halves[1]),
        2 * B * places * 4 * D * D // 2,
    )
    return rows


def engine(args: argparse.Namespace) -> list[dict]:
    rows = []
    model = lively(preset(args.preset))
    cases = [("bf16", args.batch), ("fp8", args.batch), ("bf16", 1)]
    for precision, batch in cases:
        images = [torch.rand(batch, 3, 256, 256, device="cuda") for _ in "ab"]
        fast = optimize(model, precision=precision)
        for k in map(int, args.k.split(",")):
            torch.cuda.reset_peak_memory_stats()
            torch.cuda.synchronize()
            began = time.perf_counter()
            fast(*images, k=k)
            torch.cuda.synchronize()
            first = time.perf_counter() - began
            taken = ms(lambda images=images, k=k, fast=fast: fast(*images, k=k))
            rows.append(
                {
                    "precision": precision,
                    "k": k,
                    "batch": batch,
                    "ms": round(taken, 2),
                    "pairs/s": round(1e3 * batch / taken, 1),
                    "GB": round(torch.cuda.max_memory_allocated() / 1e9, 2),
                    "first call, s": round(first, 1),
                }
            )
            print(rows[-1], flush=True)
        del fast
        torch.cuda.empty_cache()
    return rows


def profile(args: argparse.Namespace) -> list[dict]:
    """Device time by part of the model, without a graph, and by kernel in a text file."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as record

    model = lively(preset(args.preset))
    rows = []
    for precision in ("bf16", "fp8"):
        fast = optimize(model, precision=precision, cuda_graph=False)
        images = [torch.rand(args.batch, 3, 256, 256, device="cuda") for _ in "ab"]
        for k in map(int, args.k.split(",")):
            for _ in range(3):
                fast(*images, k=k)
            with record(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as trace:
                fast(*images, k=k)
                torch.cuda.synchronize()
            averages = trace.key_averages()
            table = averages.table(
                sort_by="self_cuda_time_total", row_limit=60, max_name_column_width=100
            )
            (args.out / f"profile-{precision}-k{k}.txt").write_text(table)
            kernels_ = [e for e in averages if e.self_device_time_total > 0]
            kernels_.sort(key=lambda e: -e.self_device_time_total)
            total = sum(e.self_device_time_total for e in kernels_)
            rows.append({"what": f"{precision} k={k}, device ms", "ms": round(total / 1e3, 2)})
            rows += [
                {
                    "what": f"  {e.key[:70]}",
                    "ms": round(e.self_device_time_total / 1e3, 2),
                    "calls": e.count,
                }
                for e in kernels_[:14]
            ]
        del fast
    return rows


def show(title: str, rows: list[dict]) -> None:
    print(f"\n== {title}")
    columns = list(dict.fromkeys(key for row in rows for key in row))
    widths = [max(len(c), *(len(str(r.get(c, ""))) for r in rows)) for c in columns]
    for row in [{c: c for c in columns}, *rows]:
        print("  ".join(str(row.get(c, "")).ljust(w) for c, w in zip(columns, widths, strict=True)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", default=",".join(STEPS))
    parser.add_argument("--preset", default="vitl16")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--k", default="16,6")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "engine-gpu")))
    parser.add_argument("--gelu", choices=("epilogue", "kernel"), default="epilogue")
    parser.add_argument("--attention", choices=("cudnn", "flash"), default="cudnn")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    ffn.EPILOGUE = args.gelu == "epilogue"
    if args.attention == "flash":
        block.BACKENDS.sort(key=lambda one: one != SDPBackend.FLASH_ATTENTION)
    steps = {
        "ceilings": lambda: ceilings(),
        "check": lambda: check_kernels() + check_engine(args),
        "kernels": lambda: kernels(args),
        "products": lambda: products(args),
        "engine": lambda: engine(args),
        "profile": lambda: profile(args),
    }
    results = {}
    for step in STEPS:
        if step in args.steps.split(","):
            began = time.perf_counter()
            results[step] = steps[step]()
            show(f"{step} ({time.perf_counter() - began:.0f} s)", results[step])
            (args.out / "engine.json").write_text(json.dumps(results, indent=1, default=str))


if __name__ == "__main__":
    main()
