"""Compile every kernel of the engine for a GPU that need not be there, and count its registers.

    python benchmarks/engine_registers.py [--preset vitl16] [--arch 90]

The engine's own functions run on CPU tensors of the model's widths; where one would launch a
kernel, the kernel is compiled for what it was given instead. Ends with status 1 if one spills.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import torch
import triton
from torch import Tensor, nn
from triton.backends import nvidia
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile
from triton.runtime.jit import JITFunction

from adadino.config import Config, preset
from adadino.engine.kernels import (
    activation,
    attention,
    gather,
    local,
    norm,
    residual,
    select,
)
from adadino.engine.ops.block import Chunks
from adadino.model.positions import rope_tables

POINTERS = {
    torch.float32: "*fp32", torch.bfloat16: "*bf16", torch.float8_e4m3fn: "*fp8e4nv",
    torch.int8: "*i8", torch.int16: "*i16", torch.int32: "*i32", torch.int64: "*i64",
}  # fmt: skip
OPTIONS = ("num_warps", "num_stages")
half = torch.bfloat16


def registers(fn: JITFunction, given: dict, arch: int) -> tuple[int, int, int]:
    """Registers of a thread, bytes spilled, bytes of shared memory of one launch."""
    options = {n: given.pop(n) for n in OPTIONS if given.get(n) is not None}
    constant = {p.name for p in fn.params if p.is_constexpr}
    names = fn.arg_names
    signature, attributes = {}, {}
    for name in names:
        value = given[name]
        signature[name] = "constexpr" if name in constant else _kind(value)
        if isinstance(value, Tensor):  # PyTorch's memory begins at multiples of more than this
            attributes[(names.index(name),)] = [["tt.divisibility", 16]]
    held = {(names.index(n),): given[n] for n in constant}
    source = ASTSource(fn=fn, signature=signature, constexprs=held, attrs=attributes)
    made = compile(source, target=GPUTarget("cuda", arch, 32), options=options)
    assembler = Path(nvidia.__file__).parent / "bin" / "ptxas"
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as text:
        text.write(made.asm["ptx"])
        text.flush()
        name = f"sm_{arch}{'a' if arch >= 90 else ''}"
        command = [assembler, "-v", f"--gpu-name={name}", text.name, "-o", "/dev/null"]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    used = max(int(n) for n in re.findall(r"Used (\d+) registers", said))
    spilled = sum(int(n) for n in re.findall(r"(\d+) bytes spill", said))
    return used, spilled, made.metadata.shared


def _kind(value: object) -> str:
    if isinstance(value, Tensor):
        return POINTERS[value.dtype]
    return "fp32" if isinstance(value, float) else "i32"


def launches(config: Config) -> Iterator[tuple[str, object]]:
    """Every kernel once for each way it is used, at the model's widths."""
    b, hidden = config.backbone, config.cgla_hidden
    D, C = b.dim, config.bscs.chunks
    rows = b.ffn // C
    x = torch.zeros(2, b.prefix + 1024, D, dtype=half)
    vector, maps = torch.zeros(D), torch.zeros(1, 1024, 2, D, dtype=half)
    given = {"shift": vector, "weight": vector, "bias": vector, "eps": 1e-5}
    for kind in (None, "fp8"):
        tag = f", {kind}" if kind else ""
        yield f"layer_norm{tag}", lambda k=kind: norm.layer_norm(x, **given, kind=k)
        yield (
            f"layer_norm_pooled{tag}",
            lambda k=kind: norm.layer_norm_pooled(x, prefix=b.prefix, **given, kind=k),
        )
        for gated in (0, rows):
            wide = torch.zeros(1, b.ffn * (2 if gated else 1), dtype=half)
            yield (
                f"activate{tag}{', gated' if gated else ''}",
                lambda w=wide, g=gated, k=kind: activation.activate(w, gated=g, kind=k),
            )
    yield "pair_norm", lambda: norm.pair_norm(x, prefix=b.prefix, shift=vector)
    z, layer = torch.zeros(1, 1024, hidden, dtype=half), nn.GroupNorm(8, hidden)
    affine = torch.zeros(1, hidden), torch.zeros(1, hidden)
    yield "group_affine", lambda: local.group_affine(z, layer)
    yield "affine_silu", lambda: local.affine_silu(z, affine)
    yield "context", lambda: local.context(z, affine, torch.zeros(hidden), torch.zeros(1))
    both, taps = maps.view(1, 32, 32, 2 * D), torch.zeros(9, 2 * D, dtype=half)
    yield "depthwise", lambda: local.depthwise(both, taps, after="gelu")
    gates = {
        "gate_spatial": torch.zeros(1, 1024),
        "gate_channel": torch.zeros(1, D),
        "gamma_self": vector,
        "gamma_delta": vector,
    }
    for features in (None, maps):
        yield (
            f"gated_residual{'' if features is None else ', signed'}",
            lambda f=features: residual.gated_residual_(
                x, maps, maps[:, :, 0].contiguous(), **gates, sign=-1, features=f
            ),
        )
    tables = rope_tables(32, 32, prefix=b.prefix, head_dim=D // b.heads, theta=100.0)
    qkv = torch.zeros(1, b.prefix + 1024, 3 * D, dtype=half)
    yield "rope", lambda: attention.rope_(qkv, *tables, heads=b.heads)
    attend = {"heads": b.heads, "prefix": b.prefix}
    yield "attention", lambda: attention.attention(qkv, tables, **attend)
    policy = {
        "weight1": torch.zeros(config.bscs.hidden, 4 * D),
        "bias1": torch.zeros(config.bscs.hidden),
        "weight2": torch.zeros(C, config.bscs.hidden),
        "bias2": torch.zeros(C),
    }
    for pairs in (16, 64):
        parts = torch.zeros(pairs, 65, 4 * D)
        yield f"select, {pairs} pairs", lambda p=parts: select.select(p, **policy, k=6)
    keep, bias = torch.arange(6), torch.zeros(C, rows, dtype=half)
    up = torch.zeros(C, rows, D, dtype=half)
    eight = up.to(torch.float8_e4m3fn)
    yield "gather", lambda: gather.gather(Chunks(up, None, bias, up), keep)
    down = eight.view(D, C, rows)
    scale = torch.zeros(C, rows)
    yield "gather, fp8", lambda: gather.gather(Chunks(eight, scale, bias, down), keep)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", default="vitl16")
    parser.add_argument("--arch", type=int, default=90, help="compute capability, 90 for 9.0")
    args = parser.parse_args()
    worst = 0
    for name, launch in launches(preset(args.preset)):

        def instead(fn: JITFunction, *values: object, name: str = name, **named: object) -> None:
            nonlocal worst
            named.pop("grid")
            named.pop("warmup")
            given = {**dict(zip(fn.arg_names, values, strict=False)), **named}
            used, spilled, shared = registers(fn, given, args.arch)
            worst = max(worst, spilled)
            kernel = fn.__name__
            print(f"{name:32} {kernel:20} {used:4} registers {shared:7} B shared {spilled} spilled")

        with mock.patch.object(JITFunction, "run", instead):
            launch()
    print(f"Triton {triton.__version__}, sm_{args.arch}: " + ("spills" if worst else "no spill"))
    return int(worst > 0)


if __name__ == "__main__":
    sys.exit(main())
