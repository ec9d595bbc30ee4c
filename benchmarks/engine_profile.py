"""Where the device's time goes, by kind of kernel: steps of `engine_gpu.py`."""

from __future__ import annotations

import engine_parts
import torch
from engine_bench import Bench, Rows, rounded

from adadino.benchmark import modes
from adadino.benchmark.cost import exact_fp32, ffn_ms, wait

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

    made = modes.make(b.model(), mode, **{**b.way, "cuda_graph": False})
    run = modes.without_graph(made)
    images = [torch.rand(b.args.batch, 3, b.args.size, b.args.size, device=b.device) for _ in "ab"]
    kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if b.cuda else [])]
    for k in (b.full, 6):
        with torch.no_grad(), modes.arithmetic(mode):
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
            yield {"what": f"paper k={k}, ms", **rounded(spent)}
        yield from engine_parts.plain_attention(b.config, b.args.batch, b.grid(), b.device)
    yield from profile(b, "paper", shown=25)


def _on_device(event: object) -> bool:
    """A kernel: neither the operator that launched it, nor a mark around several of them."""
    there = getattr(event, "device_type", None) == torch.autograd.DeviceType.CUDA
    return there and not getattr(event, "is_user_annotation", False)
