"""Where the engine's time goes: a pass by kind of kernel, then every part alone.

    python benchmarks/engine_parts.py [--preset vitl16] [--batch 16] [--size 256] [--device cuda]

A part stands beside the least that its bytes or operations would take: `floor` is at 4.0 TB/s and
790 (bf16) or 1500 (fp8) TFLOP/s. The whole is measured by `adadino benchmark`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity
from torch.profiler import profile as record

from adadino.benchmark.cost import wait
from adadino.config import Config, preset
from adadino.engine import optimize
from adadino.engine.ops import adapter, block
from adadino.engine.rows import product, quantize
from adadino.model.adadino import AdaDINO
from adadino.model.positions import rope_tables

BYTES, BF16, FP8 = 4.0e12, 790e12, 1500e12
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
half = torch.bfloat16


class Timer:
    """Makes inputs on a device and times what runs there."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def randn(self, *shape: int, dtype: torch.dtype = half) -> Tensor:
        """Random numbers: on zeros a matrix product draws less power, and runs faster."""
        return torch.randn(shape, device=self.device).to(dtype)

    def ms(self, run: Callable[[], object]) -> float:
        """The median time of a call, the cache cold."""
        if self.device.type == "cuda":
            from triton.testing import do_bench

            return float(do_bench(run, warmup=20, rep=100, return_mode="median"))
        run()
        began = time.perf_counter()
        run()
        return 1e3 * (time.perf_counter() - began)

    def row(
        self, name: str, run: Callable, *, moved: float = 0, flops: float = 0, rate: float = BF16
    ) -> dict:
        """One line of the table; what cannot run here is a line, too."""
        try:
            taken = self.ms(run)
        except (RuntimeError, NotImplementedError, AssertionError) as error:
            return {"what": name, "why": f"{type(error).__name__}: {error}".splitlines()[0][:120]}
        return {
            "what": name,
            "us": round(1e3 * taken, 1),
            "floor_us": round(1e6 * max(moved / BYTES, flops / rate), 1),
            "TB/s": round(moved / taken / 1e9, 2),
            "TFLOP/s": round(flops / taken / 1e9),
        }


def ceilings(device: torch.device, side: int) -> Iterator[dict]:
    """What the device reaches at its best: a copy, and square products of this side."""
    t = Timer(device)
    big = torch.empty(64 * side**2, dtype=torch.uint8, device=device).random_()
    copy = torch.empty_like(big)
    a, b = t.randn(side, side), t.randn(side, side)
    left, right = quantize(a, "fp8"), quantize(b, "fp8")
    yield t.row("copy", lambda: copy.copy_(big), moved=2 * big.numel())
    yield t.row(f"bf16 {side}^3", lambda: a @ b, flops=2 * side**3)
    run = lambda: product(left, right, None, half)  # noqa: E731
    yield t.row(f"fp8 by row {side}^3", run, flops=2 * side**3, rate=FP8)


def kernels(config: Config, batch: int, grid: int, device: torch.device) -> Iterator[dict]:
    """Each kernel at the size that it has in the model."""
    t = Timer(device)
    b, D, heads = config.backbone, config.backbone.dim, config.backbone.heads
    B, h, H = batch, grid, config.cgla_hidden
    N, M = b.prefix + h * h, 2 * B * (b.prefix + h * h)
    tokens, places = M * D * 2, 2 * B * h * h * D * 2  # bytes in bf16
    x = t.randn(2 * B, N, D)
    vectors = {n: t.randn(D, dtype=torch.float32) for n in ("shift", "weight", "bias")}
    given = {**vectors, "eps": 1e-5}
    qkv = t.randn(2 * B, N, 3 * D)
    tables = rope_tables(h, h, prefix=b.prefix, head_dim=D // heads, theta=100.0, device=device)
    z, small = t.randn(B, h * h, H), B * h * h * H * 2
    affine = tuple(t.randn(B, H, dtype=torch.float32) for _ in "ab")
    layer = nn.GroupNorm(8, H).to(device).requires_grad_(False)
    both, taps = t.randn(B, h, h, 2 * D), t.randn(9, 2 * D)
    narrow = taps[:, :H].contiguous()
    conv = taps.t().reshape(-1, 1, 3, 3).contiguous(memory_format=torch.channels_last)
    maps = t.randn(B, h * h, 2, D), t.randn(B, h * h, D)
    gates = {
        "gate_spatial": torch.rand(B, h * h, device=device),
        "gate_channel": torch.rand(B, D, device=device),
        "gamma_self": t.randn(D, dtype=torch.float32) * 1e-3,
        "gamma_delta": t.randn(D, dtype=torch.float32) * 1e-3,
        "sign": -1,
    }
    spatial = vectors["shift"][:H].contiguous(), vectors["bias"][:1].contiguous()
    pair = {"prefix": b.prefix, "shift": vectors["shift"]}
    runs: dict[str, tuple[Callable, float]] = {
        "layer_norm": (lambda: block.layer_norm(x, **given), 2 * tokens),
        "layer_norm -> fp8": (lambda: block.layer_norm(x, **given, kind="fp8"), 1.5 * tokens),
        "layer_norm + pool": (
            lambda: block.layer_norm_pooled(x, prefix=b.prefix, **given),
            2 * tokens,
        ),
        "rope": (lambda: block.rope_(qkv, *tables, heads=heads), 4 * tokens),
        "rope of keys": (lambda: block.rope_(qkv, *tables, heads=heads, queries=False), 2 * tokens),
        "pair_norm": (lambda: adapter.pair_norm(x, **pair), 3 * places),
        "group_affine, H": (lambda: adapter.group_affine(z, layer), small),
        "affine_silu, H": (lambda: adapter.affine_silu(z, affine), 2 * small),
        "context, H": (lambda: adapter.context(z, affine, *spatial), 2 * small),
        "depthwise, H": (lambda: adapter.depthwise(z.view(B, h, h, H), narrow), 2 * small),
        "depthwise + gelu, 2D": (lambda: adapter.depthwise(both, taps, after="gelu"), 2 * places),
        "  the same, cuDNN": (
            lambda: F.gelu(F.conv2d(both.permute(0, 3, 1, 2), conv, padding=1, groups=2 * D)),
            2 * places,
        ),
        "gated_residual": (lambda: adapter.gated_residual_(x, *maps, **gates), 3.5 * places),
    }
    for width in (b.ffn, 6 * b.ffn // 16):
        hidden = t.randn(M, width)
        run = lambda hidden=hidden: block.activate(hidden, kind="fp8")  # noqa: E731
        runs[f"gelu -> fp8, {width}"] = (run, 3 * hidden.numel())
    for name, (run, moved) in runs.items():
        yield t.row(name, run, moved=moved)
    yield from _choice(t, config, batch, N)
    attend = lambda: block.attention(qkv, tables, heads=heads, prefix=b.prefix)  # noqa: E731
    yield t.row("rotate and attend", attend, flops=4 * 2 * B * N**2 * D)


def _choice(t: Timer, config: Config, batch: int, tokens: int) -> Iterator[dict]:
    """The policy and the gather of one block."""
    D, C, hidden = config.backbone.dim, config.bscs.chunks, config.bscs.hidden
    rows = config.backbone.ffn // C
    single = torch.float32
    parts = t.randn(batch, -(-tokens // 16), 4 * D, dtype=single)
    weights = {
        "weight1": t.randn(hidden, 4 * D, dtype=single) / 64,
        "bias1": t.randn(hidden, dtype=single),
        "weight2": t.randn(C, hidden, dtype=single) / 16,
        "bias2": t.randn(C, dtype=single),
    }
    chunks = block.Chunks(t.randn(C, rows, D), None, t.randn(C, rows), t.randn(C, rows, D))
    moved = 4 * (parts.numel() + weights["weight1"].numel())
    keep = block.select(parts, **weights, k=6)[1]
    yield t.row("policy", lambda: block.select(parts, **weights, k=6), moved=moved)
    yield t.row("gather", lambda: block.gather(chunks, keep), moved=2 * 2 * 2 * 6 * rows * D)


def products(config: Config, batch: int, grid: int, device: torch.device) -> Iterator[dict]:
    """The matrix products and the attention, each in the ways that the engine could do it."""
    t = Timer(device)
    b = config.backbone
    D, heads, N = b.dim, b.heads, b.prefix + grid**2
    M = 2 * batch * N
    x, sums = t.randn(M, D), t.randn(M, D)
    rows8 = quantize(x, "fp8")
    w, bias, proj = t.randn(3 * D, D), t.randn(3 * D), t.randn(D, D)
    w8 = quantize(w, "fp8")
    yield t.row("qkv", lambda: F.linear(x, w, bias), flops=2 * M * D * 3 * D)
    run = lambda: product(rows8, w8, bias, half)  # noqa: E731
    yield t.row("qkv fp8", run, flops=2 * M * D * 3 * D, rate=FP8)
    run = lambda: product(rows8, w8, None, half)  # noqa: E731
    yield t.row("qkv fp8, no bias", run, flops=2 * M * D * 3 * D, rate=FP8)
    yield t.row("proj into the tokens", lambda: sums.addmm_(x, proj), flops=2 * M * D * D)
    yield t.row("proj, then add", lambda: sums.add_(x @ proj), flops=2 * M * D * D)
    for width in (b.ffn, 6 * b.ffn // 16):
        yield from _ffn(t, x, sums, rows8, width)
    yield from _attention(t, 2 * batch, N, heads, D // heads)
    yield from _attention(t, 2 * batch, N - b.prefix, heads, D // heads)
    both, w4 = t.randn(batch * grid**2, 4 * D), t.randn(D // 2, 4 * D)
    two = both[:, : 2 * D].contiguous(), both[:, 2 * D :].contiguous()
    halves = w4[:, : 2 * D].contiguous(), w4[:, 2 * D :].t().contiguous()
    flops = 2 * len(both) * 4 * D * D // 2
    yield t.row("CGLA 4D, one product", lambda: F.linear(both, w4), flops=flops)
    run = lambda: F.linear(two[0], halves[0]).addmm_(two[1], halves[1])  # noqa: E731
    yield t.row("CGLA 4D, two that add up", run, flops=flops)


def _ffn(t: Timer, x: Tensor, sums: Tensor, rows8: object, width: int) -> Iterator[dict]:
    M, D = x.shape
    flops = 2 * M * D * width
    up, bias, down = t.randn(width, D), t.randn(width), t.randn(width, D)
    hidden, turned = t.randn(M, width), down.t().contiguous()
    up8, down8, hidden8 = (quantize(one, "fp8") for one in (up, turned, hidden))
    runs: dict[str, Callable] = {
        f"up {width}, GELU epilogue": lambda: torch._addmm_activation(
            bias, x, up.t(), use_gelu=True
        ),
        f"up {width}, GELU kernel": lambda: block.activate(F.linear(x, up, bias)),
        f"up {width} fp8": lambda: product(rows8, up8, bias, half),
        f"down {width} into the tokens": lambda: sums.addmm_(hidden, down),
        f"down {width}, the other layout": lambda: sums.addmm_(hidden, turned.t()),
        f"down {width} fp8, then add": lambda: sums.add_(product(hidden8, down8, None, half)),
    }
    for name, run in runs.items():
        yield t.row(name, run, flops=flops, rate=FP8 if "fp8" in name else BF16)
    sums.normal_()


def _attention(t: Timer, images: int, tokens: int, heads: int, dim: int) -> Iterator[dict]:
    q, k, v = t.randn(images, tokens, 3, heads, dim).permute(2, 0, 3, 1, 4)
    flops = 4 * images * heads * tokens**2 * dim
    for backend in (SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION):
        name = f"attention {tokens}, {backend.name.split('_')[0].lower()}"
        with sdpa_kernel(backend):
            run = lambda: F.scaled_dot_product_attention(q, k, v)  # noqa: E731
            yield t.row(name, run, flops=flops)


def profile(
    config: Config, batch: int, size: int, device: torch.device, precision: str
) -> Iterator[dict]:
    """Device time by group and by kernel; without a graph, so that every kernel has its name."""
    cuda = device.type == "cuda"
    with device:
        model = AdaDINO(config).eval()
    engine = optimize(model, precision=precision, compile=cuda, cuda_graph=False)
    images = [torch.rand(batch, 3, size, size, device=device) for _ in "ab"]
    kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
    for k in (config.bscs.chunks, config.bscs.k):
        for _ in range(3):
            engine(*images, k=k)
        wait(device)
        with record(activities=kinds) as trace:
            engine(*images, k=k)
            wait(device)
        name = "self_device_time_total" if cuda else "self_cpu_time_total"
        spent = [(getattr(event, name), event) for event in trace.key_averages()]
        spent = [(us, event) for us, event in spent if us > 0 and (not cuda or _on_device(event))]
        groups: dict[str, float] = {}
        for us, event in spent:
            group = group_of(event.key)
            groups[group] = groups.get(group, 0) + us
        total = sum(groups.values())
        ordered = sorted(groups.items(), key=lambda one: -one[1])
        yield {"what": f"{precision}, k={k}", "ms": round(total / 1e3, 2)} | {
            group: round(us / 1e3, 2) for group, us in ordered
        }
        for us, event in sorted(spent, key=lambda one: -one[0])[:20]:
            yield {"kernel": event.key[:60], "ms": round(us / 1e3, 3), "calls": event.count}


def group_of(kernel: str) -> str:
    """The group of a kernel by its name."""
    name = kernel.lower()
    fits = (group for group, parts in GROUPS.items() if any(part in name for part in parts))
    return next(fits, "other")


def _on_device(event: object) -> bool:
    """A kernel: neither the operator that launched it, nor a mark around several of them."""
    there = getattr(event, "device_type", None) == torch.autograd.DeviceType.CUDA
    return there and not getattr(event, "is_user_annotation", False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", default="vitl16")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--size", type=int, default=256, help="side in pixels")
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    device, config = torch.device(args.device), preset(args.preset)
    grid, cuda = -(-args.size // config.stride), device.type == "cuda"
    for precision in ("bf16", "fp8" if cuda else "int8"):
        for row in profile(config, args.batch, args.size, device, precision):
            print(row, flush=True)
    for rows in (
        ceilings(device, 8192 if cuda else 256),
        kernels(config, args.batch, grid, device),
        products(config, args.batch, grid, device),
    ):
        for row in rows:
            print(row, flush=True)


if __name__ == "__main__":
    main()
