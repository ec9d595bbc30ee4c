"""Training pairs/s and peak memory: the paper's protocol (fp32, eager) against the fast recipe.

    python benchmarks/training.py [--preset vitl16] [--batch 8] [--k 16,6] [--modes paper,bf16,fast]

One step is what `adadino train` does for one batch: augmentation on the device, forward, the whole
loss, backward, and every second step the optimizer. Data is already on the device, weights are
random. `paper` is fp32 with TF32 off, eager; `bf16` holds the frozen weights in bf16 and runs the
rest in autocast; `fast` compiles that; `graph` records it, forward to backward, as a CUDA graph.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from contextlib import nullcontext

import torch

from adadino.benchmark.cost import exact_fp32
from adadino.config import preset
from adadino.data.augment import Augment
from adadino.losses import weigh
from adadino.model.adadino import AdaDINO
from adadino.training.step import Step, StepLoss, record, set_up


def measure(args: argparse.Namespace, mode: str, k: int) -> dict[str, object]:
    """Time one mode and budget."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    config = preset(args.preset)
    config = dataclasses.replace(config, bscs=dataclasses.replace(config.bscs, k=k))
    device = torch.device(args.device)
    with device:
        model = AdaDINO(config).train()
    compiled = mode in ("fast", "graph")
    set_up(model, precision="32" if mode == "paper" else "bf16", compile=compiled)
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, fused=device.type == "cuda")
    augment = Augment()
    generator = torch.Generator().manual_seed(0)
    shape = (args.batch, 3, args.size, args.size)
    before, after = (torch.randint(0, 256, shape, dtype=torch.uint8, device=device) for _ in "ab")
    mask = (torch.rand(args.batch, args.size, args.size, device=device) < 0.1).to(torch.uint8)

    plain = StepLoss(model, k=None, dice="micro")
    recorded: list[Step] = []

    def step(index: int) -> torch.Tensor:
        batch = augment(before, after, mask, generator)
        if not recorded:
            graph = mode == "graph" and device.type == "cuda"
            recorded.append(record(plain, batch, bf16=True) if graph else plain)
        with torch.autocast(device.type, torch.bfloat16, enabled=mode != "paper"):
            loss = weigh(recorded[0](*batch), 0.01).total
        loss.backward()
        if (index + 1) * args.batch % 16 == 0:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize()

    began = time.perf_counter()
    first = step(0)
    wait()
    started = time.perf_counter() - began
    for index in range(1, args.warmup):
        step(index)
    wait()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    began = time.perf_counter()
    for index in range(args.steps):
        loss = step(index)
    wait()
    seconds = (time.perf_counter() - began) / args.steps
    memory = torch.cuda.max_memory_allocated() / 1e9 if device.type == "cuda" else float("nan")
    row = {
        "mode": mode,
        "k": k,
        "batch": args.batch,
        "pairs_per_s": round(args.batch / seconds, 2),
        "ms_per_step": round(1000 * seconds, 2),
        "memory_gb": round(memory, 2),
        "first_step_s": round(started, 1),
        "loss": [round(float(first), 4), round(float(loss), 4)],
    }
    print(row, flush=True)
    if args.profile and mode != "paper":
        profile(step, f"{args.profile}-{mode}-k{k}.txt")
    return row


def profile(step, path: str) -> None:
    """Write where the device's time goes, by kernel."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as record

    with record(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as trace:
        for index in range(4):
            step(index)
        torch.cuda.synchronize()
    with open(path, "w") as file:  # noqa: PTH123
        averages = trace.key_averages()
        file.write(
            averages.table(sort_by="self_cuda_time_total", row_limit=60, max_name_column_width=90)
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", default="vitl16")
    parser.add_argument("--batch", type=int, default=8, help="pairs per step; 16 per update")
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--k", default="16,6")
    parser.add_argument("--modes", default="paper,bf16,fast")
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--profile", help="prefix of kernel tables to write")
    parser.add_argument("--json", help="file for the rows")
    args = parser.parse_args()
    rows = []
    for k in map(int, args.k.split(",")):
        for mode in args.modes.split(","):
            with exact_fp32() if mode == "paper" else nullcontext():
                rows.append(measure(args, mode, k))
            if args.json:
                with open(args.json, "w") as file:  # noqa: PTH123
                    json.dump(rows, file, indent=1)
    base = {row["k"]: row["pairs_per_s"] for row in rows if row["mode"] == "paper"}
    print(f"{'mode':8}{'k':>4}{'pairs/s':>10}{'x paper':>9}{'GB':>8}{'first step, s':>15}")
    for row in rows:
        ratio = f"{row['pairs_per_s'] / base[row['k']]:.1f}" if row["k"] in base else ""
        print(
            f"{row['mode']:8}{row['k']:>4}{row['pairs_per_s']:>10}{ratio:>9}{row['memory_gb']:>8}"
            f"{row['first_step_s']:>15}"
        )


if __name__ == "__main__":
    main()
