"""Is the engine right on this device? Every kernel, then the whole.

    python benchmarks/engine_checks.py [--preset vitl16] [--size 256] [--device cuda]
    python benchmarks/engine_checks.py --model DIR --data DIR [--split test]

Fresh random inputs, outputs poisoned first, against the plain operations in float32 on the CPU (for
the whole engine: against the plain model in float32 on the device). With --model and --data, a
trained model in bf16 and fp8 against itself in fp32 on labelled pairs. Ends with status 1 if
anything is wrong. How fast it is: `adadino benchmark`, and `engine_parts.py` by kernel.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from adadino.benchmark.agreement import agree
from adadino.benchmark.cost import exact_fp32
from adadino.checkpoint import load
from adadino.config import Config, preset
from adadino.data.folder import PairFolder
from adadino.engine import optimize
from adadino.engine.ops import adapter, block
from adadino.engine.rows import product, quantize
from adadino.evaluation import same_size
from adadino.model.adadino import AdaDINO
from adadino.model.positions import rope_tables

half = torch.bfloat16
TIMES = {"bf16": 2.0, "fp8": 6.0}  # bf16: 1.2 to 1.55 on an H200
"""How far the engine's logits may be from fp32, as multiples of how far the plain model is that was
simply converted to bf16: random weights say little about any absolute distance."""


@contextmanager
def poisoned() -> Iterator[None]:
    """PyTorch fills what `torch.empty` gives with NaN while it is asked to be deterministic."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@contextmanager
def no_waiting(device: torch.device) -> Iterator[None]:
    """An error where the host waits for the device."""
    if device.type == "cuda":
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        if device.type == "cuda":
            torch.cuda.set_sync_debug_mode("default")


def off(got: Tensor, expected: Tensor) -> float:
    """Distance relative to what varies: a constant in both hides nothing."""
    got, expected = got.detach().double().cpu(), expected.detach().double().cpu()
    assert got.shape == expected.shape, f"{tuple(got.shape)}, not {tuple(expected.shape)}"
    assert got.isfinite().all(), "an element is not finite: nobody wrote it"
    return float((got - expected).norm() / (expected - expected.mean()).norm())


def attempt(name: str, run: Callable[[], dict]) -> dict:
    """A check's row; a check that breaks is a row, too."""
    try:
        return {"check": name, "ok": True, **run()}
    except Exception as error:
        traceback.print_exc(limit=-4)
        text = (str(error).splitlines() or [""])[0]
        return {"check": name, "ok": False, "why": f"{type(error).__name__}: {text}"[:160]}


def compare(run: Callable, *args: object, within: float, **given: object) -> dict:
    """The dispatched operation on the device against the plain one on the CPU in float32."""
    there = tree_map(_on_cpu, (args, given))  # before the run: some work in place
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
            same = float((one.float().cpu() == two.float()).float().mean())
            assert same > 0.9, f"{1 - same:.1%} of e4m3 values differ"  # ties of the rounding
            continue
        error = max(error, off(one, two))
    assert error < within, f"{error:.1e} is not within {within:.0e}"
    return {"error": f"{error:.1e}", "within": within}


def _on_cpu(value: object) -> object:
    return value.detach().cpu().float().clone() if isinstance(value, Tensor) else value


def check_kernels(device: torch.device, dim: int, hidden: int, heads: int) -> Iterator[dict]:
    """Every operation, in float32, bf16 and, where there is one, with fp8 results."""
    torch.manual_seed(1)

    def randn(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.randn(shape, device=device).to(dtype)

    def groups(x: Tensor, weight: Tensor, bias: Tensor) -> object:
        layer = nn.GroupNorm(8, hidden)
        layer.weight, layer.bias = (
            nn.Parameter(t, requires_grad=False) for t in (weight.float(), bias.float())
        )
        return adapter.group_affine(x, layer)

    def residual_(x: Tensor, *rest: Tensor, **given: object) -> object:
        return adapter.gated_residual_(x, *rest, **given), x  # what it returns, what it moved

    def gathered(up: Tensor, bias: Tensor, down: Tensor, scale: Tensor | None) -> object:
        keep = torch.tensor([1, 4, 5, 9, 12, 15], device=up.device)
        return tuple(block.gather(block.Chunks(up, scale, bias, down), keep))

    B, h = 3, 14
    for dtype, within in ((half, 2e-2), (torch.float32, 2e-5)):
        x = randn(2 * B, 5 + h * h, dim, dtype=dtype) * 2 + 1
        vectors = {n: randn(dim) for n in ("shift", "weight", "bias")}
        z = randn(B, h * h, hidden, dtype=dtype) + 2
        affine = tuple(randn(B, hidden) for _ in "ab")
        spatial = randn(hidden) / 20, randn(1)
        maps = randn(B, h * h, 2, dim, dtype=dtype), randn(B, h * h, dim, dtype=dtype)
        gates = {
            "gate_spatial": torch.rand(B, h * h, device=device),
            "gate_channel": torch.rand(B, dim, device=device),
            "gamma_self": randn(dim),
            "gamma_delta": randn(dim),
        }
        tables = rope_tables(h, h, prefix=5, head_dim=dim // heads, theta=100.0, device=device)
        qkv = randn(2, 5 + h * h, 3 * dim, dtype=dtype)
        tag = str(dtype).removeprefix("torch.")

        def check(
            name: str, run: Callable, *args: object, tag: str = tag, within: float = within,
            **given: object,
        ) -> dict:  # fmt: skip
            return attempt(f"{name}, {tag}", lambda: compare(run, *args, within=within, **given))

        for kind in (None, "fp8"):
            given = {**vectors, "eps": 1e-5, "kind": kind}
            suffix = f" -> {kind}" if kind else ""
            yield check(f"layer_norm{suffix}", block.layer_norm, x, **given)
            yield check(f"layer_norm_pooled{suffix}", block.layer_norm_pooled, x, prefix=5, **given)
            for gated in (0, 96):
                rows = randn(777, 1536, dtype=dtype) * 2
                name = f"activate{' gated' if gated else ''}{suffix}"
                yield check(name, block.activate, rows, gated=gated, kind=kind)
        yield check("pair_norm", adapter.pair_norm, x, prefix=5, shift=vectors["shift"])
        yield check("rope", block.rope_, qkv.clone(), *tables, heads=heads)
        yield check("rope of keys", block.rope_, qkv.clone(), *tables, heads=heads, queries=False)
        for side in (h, 16):  # tiles that are cut, and whole ones behind the prefix
            turn = rope_tables(
                side, side, prefix=5, head_dim=dim // heads, theta=100.0, device=device
            )
            tokens = randn(3, 5 + side**2, 3 * dim, dtype=dtype)
            given = {"heads": heads, "prefix": 5}
            yield check(f"attention {5 + side**2}", block.attention, tokens, turn, **given)
            name = f"attention {5 + side**2}, learned positions"
            yield check(name, block.attention, tokens, None, **given)
        weights = randn(16, 96, dim, dtype=dtype), randn(16, 96, dtype=dtype)
        down = randn(16, 96, dim, dtype=dtype)
        yield check("gather", gathered, *weights, down, None, within=1e-6)
        yield check("group_affine", groups, z, randn(hidden), randn(hidden))
        yield check("affine_silu", adapter.affine_silu, z, affine)
        for after in ("none", "gelu"):
            wide = randn(B, h, 17, 200, dtype=dtype), randn(9, 200, dtype=dtype)
            yield check(f"depthwise {after}", adapter.depthwise, *wide, after=after)
        yield check("context", adapter.context, z, affine, *spatial)
        for sign, features in ((-1, None), (1, randn(B, h * h, 2, dim, dtype=dtype))):
            given = {**gates, "sign": sign, "features": features}
            yield check(f"gated_residual {sign}", residual_, x.clone(), *maps, **given)
    eight = [quantize(randn(16, 96, dim), "fp8"), quantize(randn(dim, 16, 96), "fp8")]
    scaled = eight[0].values, randn(16, 96, dtype=half), eight[1].values, eight[0].scale
    yield check("gather fp8", gathered, *scaled, tag="fp8", within=1e-6)
    for pairs in (3, 16, 19):
        policy = {
            "weight1": randn(256, 4 * dim) / (4 * dim) ** 0.5,
            "bias1": randn(256),
            "weight2": randn(16, 256) / 16,
            "bias2": randn(16),
        }
        pooled = randn(pairs, 65, 4 * dim)
        yield check(f"select, {pairs} pairs", block.select, pooled, **policy, k=6, within=2e-5)
    yield attempt("fp8 product", lambda: _check_product(device, dim))


def _check_product(device: torch.device, dim: int) -> dict:
    """The scaled product of odd heights, with and without a bias, against float64."""
    worst = 0.0
    for height in (12, 777, 2058):
        x = quantize(torch.randn(height, dim, device=device), "fp8")
        weight = quantize(torch.randn(2 * dim, dim, device=device), "fp8")
        bias = torch.randn(2 * dim, device=device).to(half)
        exact = [r.values.double() * r.scale.double()[:, None] for r in (x, weight)]
        expected = exact[0] @ exact[1].t()
        worst = max(worst, off(product(x, weight, None, half), expected))
        worst = max(worst, off(product(x, weight, bias, half), expected + bias.double()))
    assert worst < 1e-2, f"{worst:.1e} is not within 1e-2"
    return {"error": f"{worst:.1e}", "within": 1e-2}


def lively(config: Config, device: torch.device) -> AdaDINO:
    """A random model whose every part moves the logits."""
    torch.manual_seed(2)
    with device:
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


def check_engine(
    model: AdaDINO, precision: str, *, batch: int, size: tuple[int, int], **engine: bool
) -> dict:
    """The engine against the model, with the same chunks, and its graph against itself."""
    device = model.device
    torch.manual_seed(3)
    chunks = torch.stack([torch.randperm(16)[:6] for _ in model.encoder.backbone.blocks])
    chunks = chunks.to(device)
    images = [torch.rand(batch, 3, *size, device=device) for _ in "ab"]
    fresh = [torch.rand_like(image) for image in images]
    fast = optimize(model, precision=precision, **engine)
    with torch.no_grad(), exact_fp32():
        expected = model(*images, chunks=chunks)
        converted = deepcopy(model).to(half)(*images, chunks=chunks)
    exact = exact_fp32() if precision == "fp32" else nullcontext()
    with torch.no_grad(), exact:
        got = fast(*images, chunks=chunks)
        other = fast(*fresh, chunks=chunks).logits
        again = fast(*images, chunks=chunks)
        eager = fast.run(*fresh, chunks, k=6).logits
        free = fast.unrecorded(*images, k=6)
        with no_waiting(device):
            fast.unrecorded(*images, k=6)
    probability = [o.logits.softmax(1)[:, 1] for o in (got, expected)]
    agree = float(((probability[0] > 0.5) == (probability[1] > 0.5)).float().mean())
    error, usual = (off(o.logits, expected.logits) for o in (got, converted))
    within = TIMES[precision] * usual if precision in TIMES else 1e-3
    row = {
        "error": f"{error:.1e}",
        "within": f"{within:.1e}",
        "q_delta": f"{off(got.responses.delta, expected.responses.delta):.1e}",
        "pixels that agree": round(agree, 5),
    }
    print(row, flush=True)
    assert torch.equal(got.logits, again.logits), "the second answer to one question differs"
    assert off(other, eager) < 1e-2, "a graph does not follow its inputs"
    assert free.scores.isfinite().all(), "a policy's score is not finite"
    assert error < within, f"{error:.1e} is not within {within:.1e}"
    return row


def check_engines(device: torch.device, name: str, side: int) -> Iterator[dict]:
    """`tiny`, whose widths fill no block of a kernel, and the preset; not compiled, with graphs."""
    cases = {"tiny": ("bf16", "fp8")} | {name: ("bf16", "fp8", "fp32")}
    for one, precisions in cases.items():
        model = lively(preset(one), device)
        for precision in precisions:
            yield attempt(
                f"engine {one}, {precision}",
                lambda model=model, precision=precision: check_engine(
                    model, precision, batch=2, size=(side - side // 4, side), compile=False
                ),
            )
            gc.collect()
        del model
        if device.type == "cuda":
            torch.cuda.empty_cache()


def agreement(path: str, data: str, split: str | None, device: torch.device) -> Iterator[dict]:
    """bf16 and fp8 against fp32, a trained model on labelled pairs."""
    model = load(path, device=device)
    pairs = PairFolder(data, split)
    models = {"fp32": model}
    for precision in ("bf16", "fp8"):
        models[precision] = optimize(model, precision=precision, compile=False)
    with exact_fp32():
        for one in agree(models, same_size(pairs, range(len(pairs)))):
            yield dataclasses.asdict(one)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", default="vitl16")
    parser.add_argument("--size", type=int, default=256, help="side in pixels")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--model", help="a trained model, for the agreement")
    parser.add_argument("--data", help="a folder of labelled pairs, for the agreement")
    parser.add_argument("--split", help="a split of that folder")
    args = parser.parse_args()
    device, config = torch.device(args.device), preset(args.preset)
    if args.model is not None:
        for row in agreement(args.model, args.data, args.split, device):
            print(row, flush=True)
        return 0
    wrong = 0
    checks = check_kernels(device, config.backbone.dim, config.cgla_hidden, config.backbone.heads)
    for row in [*checks, *check_engines(device, args.preset, args.size)]:
        print(row, flush=True)
        wrong += not row["ok"]
    print(f"{wrong} checks fail" if wrong else "every check passes")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
