"""The first call, in processes of their own, and its parts: a step of `engine_gpu.py`."""

from __future__ import annotations

import importlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from engine_bench import Bench, Rows

from adadino.benchmark import modes
from adadino.benchmark.cost import wait
from adadino.engine.cache import keep_compiled


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
            script = Path(__file__).with_name("engine_gpu.py")
            command = [sys.executable, str(script), "--first", *b.args.given]
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
    made = modes.make(model, "fast", compile=True)
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
