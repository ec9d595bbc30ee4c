"""What waiting threads cost: the bundled model on tiles, by thread count and wait policy.

    python benchmarks/threads.py [--tiles 8] [--rounds 2] [--busy N] [--onnx FILE]

Each setting runs in a process of its own, because OpenMP reads its settings once. The settings take
turns, so that whatever else the machine does slows all of them. `--busy N` starts N processes that
compute besides. Columns: wall and CPU seconds for one megapixel of tiles, medians over the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys

TORCH = """
import json, sys, time, numpy as np, torch, adadino
model, tiles = adadino.load("tiny"), int(sys.argv[1])
pair = [torch.rand(1, 3, 256, 256) for _ in range(2)]
with torch.inference_mode():
    model(*pair)
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(tiles):
        model(*pair)
        time.sleep(0.02)  # as long as a tile is read and blended
print(json.dumps([time.perf_counter() - wall, time.process_time() - cpu]))
"""
ONNX = """
import json, os, sys, time, numpy as np, onnxruntime as ort
options = ort.SessionOptions()
options.log_severity_level = 3
options.intra_op_num_threads = int(os.environ["OMP_NUM_THREADS"])
options.add_session_config_entry("session.intra_op.allow_spinning", os.environ["SPIN"])
session = ort.InferenceSession(sys.argv[2], options, providers=["CPUExecutionProvider"])
names = [one.name for one in session.get_inputs()]
pair = {name: np.random.rand(1, 3, 256, 256).astype("f4") for name in names}
session.run(None, pair)
wall, cpu = time.perf_counter(), time.process_time()
for _ in range(int(sys.argv[1])):
    session.run(None, pair)
    time.sleep(0.02)
print(json.dumps([time.perf_counter() - wall, time.process_time() - cpu]))
"""


def main() -> None:
    """Print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tiles", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--busy", type=int, default=0)
    parser.add_argument("--onnx")
    options = parser.parse_args()
    most = str(len(os.sched_getaffinity(0)))
    settings: list[tuple[str, str, dict[str, str]]] = [
        ("torch, 1 thread", TORCH, {"OMP_NUM_THREADS": "1"}),
        (f"torch, {most} threads, ACTIVE", TORCH, {"OMP_WAIT_POLICY": "ACTIVE"}),
        (f"torch, {most} threads, default", TORCH, {}),
        (f"torch, {most} threads, PASSIVE", TORCH, {"OMP_WAIT_POLICY": "PASSIVE"}),
    ]
    if options.onnx:
        settings += [
            ("onnxruntime, 1 thread", ONNX, {"OMP_NUM_THREADS": "1", "SPIN": "0"}),
            (f"onnxruntime, {most} threads, spinning", ONNX, {"SPIN": "1"}),
            (f"onnxruntime, {most} threads, not spinning", ONNX, {"SPIN": "0"}),
        ]
    others = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(options.busy)
    ]
    taken: dict[str, list[list[float]]] = {name: [] for name, _, _ in settings}
    try:
        for _ in range(options.rounds):
            for name, code, chosen in settings:
                plain = {k: v for k, v in os.environ.items() if not k.startswith(("OMP", "MKL"))}
                command = [sys.executable, "-c", code, str(options.tiles), options.onnx or ""]
                env = {**plain, "OMP_NUM_THREADS": most, **chosen}
                done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
                taken[name].append(json.loads(done.stdout))
                print(name, taken[name][-1], file=sys.stderr, flush=True)
    finally:
        for other in others:
            other.kill()
    scale = 1e6 / (options.tiles * 256**2)
    print("| setting | wall, s/MP | CPU, s/MP |\n|---|---|---|")
    for name, rows in taken.items():
        wall, cpu = (scale * statistics.median(column) for column in zip(*rows, strict=True))
        print(f"| {name} | {wall:.1f} | {cpu:.1f} |")


if __name__ == "__main__":
    main()
