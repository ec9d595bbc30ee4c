"""What the model costs: GFLOPs by the paper's counting convention, pairs/s, FFN time. Table 3.

The paper estimates GFLOPs "with the PyTorch profiler": one pair, 256 x 256 pixels. That counter
sees matrix products and convolutions (two operations for each multiply-add), elementwise products
and sums (one for each element of the first operand), and nothing else; the two products inside
scaled_dot_product_attention are invisible to it. `count_flops` applies the same rules to meta
tensors, so a ViT-L is counted in seconds and without memory; a test holds it equal to
`torch.profiler` on a real run. Because an elementwise product counts the elements of its first
operand alone, `gate * map` and `map * gate` differ where one of them is broadcast: the second
decimal of our GFLOPs follows from the order of operands, which the paper does not give. The
profiler overlooks transposed convolutions, which only peers have; here they are counted.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from adadino.build import new_model
from adadino.config import Config
from adadino.model.detector import Detector

aten = torch.ops.aten


class _SkipAttention(TorchFunctionMode):
    """Give attention's output its shape without computing it: the profiler does not count it."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is F.scaled_dot_product_attention:
            query, _, value = args[:3]
            return value.new_empty(*query.shape[:-1], value.shape[-1])
        return func(*args, **(kwargs or {}))


class _Counter(TorchDispatchMode):
    """Add up the operations of every call, by the profiler's rules."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch leaves it bare
        self.flops = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        match func._overloadpacket:
            case aten.mm | aten.bmm:
                self.flops += 2 * out.numel() * args[0].shape[-1]
            case aten.addmm | aten.baddbmm:
                self.flops += 2 * out.numel() * args[1].shape[-1]
            case aten.convolution if args[6]:  # transposed: every input meets a whole kernel
                self.flops += 2 * args[0].numel() * math.prod(args[1].shape[1:])
            case aten.convolution:
                self.flops += 2 * out.numel() * math.prod(args[1].shape[1:])
            case aten.mul | aten.add if isinstance(args[0], Tensor):
                self.flops += args[0].numel()
        return out


def count_flops(run: Callable[[], Any]) -> int:
    """Count the operations of `run()`, which should work on meta tensors."""
    # no_grad, not inference_mode: only the former shows composites (linear) by their parts (addmm).
    with torch.no_grad(), _SkipAttention(), _Counter() as counter:
        run()
    return counter.flops


def gflops(model: Config | Detector, *, k: int | None = None, size: int = 256) -> float:
    """GFLOPs of one forward pass over one pair.

    Args:
        model: The configuration, or what was made of it on the meta device.
        k: FFN chunks to execute, if not the configuration's.
        size: Side of the square input in pixels.
    """
    with torch.device("meta"):
        network = (new_model(model) if isinstance(model, Config) else model).eval()
        image = torch.empty(1, network.config.bands.count, size, size)
        return count_flops(lambda: network(image, image, k=k)) / 1e9


@contextmanager
def exact_fp32() -> Iterator[None]:
    """The paper's arithmetic: no TF32, in matrix products or convolutions."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    # Not matmul.allow_tf32: setting it, even to its own value, changes the key under which PyTorch
    # keeps compiled code, and everything would be compiled again.
    before = matmul.fp32_precision, cudnn.allow_tf32
    matmul.fp32_precision, cudnn.allow_tf32 = "ieee", False
    try:
        yield
    finally:
        matmul.fp32_precision, cudnn.allow_tf32 = before


@torch.inference_mode()
def throughput(
    model: Detector,
    *,
    batch: int = 16,
    size: int = 256,
    warmup: int = 5,
    measured: int = 20,
    recorded: bool = False,
) -> float:
    """Pairs per second of the model as it is, on its own device: the protocol of Table 3.

    Products in float32 are computed without TF32.

    Args:
        model: The model, on the device and in the precision to measure.
        batch: Pairs per batch.
        size: Side of the square input in pixels.
        warmup: Batches before the clock starts.
        measured: Batches that are timed; policy and gather included, data already on the device.
        recorded: On a CUDA device, time a graph of the pass instead of the host that issues it.
    """
    model.eval()
    device, bands = model.device, model.config.bands.count
    before, after = (torch.rand(batch, bands, size, size, device=device) for _ in range(2))
    run: Callable[[], Any] = lambda: model(before, after)  # noqa: E731
    with exact_fp32():
        if recorded and device.type == "cuda":
            run = _recorded(run)
        for index in range(warmup + measured):
            if index == warmup:
                wait(device)
                began = time.perf_counter()
            run()
        wait(device)
    return measured * batch / (time.perf_counter() - began)


def _recorded(run: Callable[[], Any]) -> Callable[[], Any]:
    """A CUDA graph of what `run` does, to be replayed."""
    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(3):  # libraries choose their algorithms
            run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def ffn_ms(
    layers: Sequence[nn.Module], forward: Callable[[], Any], device: torch.device, times: int = 3
) -> float:
    """Milliseconds that the given layers take in one forward pass; the least of a few passes.

    Args:
        layers: The feed-forward layers, each called once in a pass.
        forward: Runs the pass, layer by layer (no replayed graph).
        device: Where it runs.
        times: How many passes.
    """
    cuda = device.type == "cuda"
    marks: list[tuple[Any, Any]] = []
    open_marks: list[Any] = []

    def now() -> Any:
        if not cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(device))
        return event

    hooks = [
        layer.register_forward_pre_hook(lambda *_: open_marks.append(now())) for layer in layers
    ]
    hooks += [
        layer.register_forward_hook(lambda *_: marks.append((open_marks.pop(), now())))
        for layer in layers
    ]
    totals = []
    try:
        with torch.inference_mode():
            for _ in range(times):
                marks.clear()
                forward()
                wait(device)
                taken = [a.elapsed_time(b) if cuda else 1000 * (b - a) for a, b in marks]
                totals.append(sum(taken))
    finally:
        for hook in hooks:
            hook.remove()
    return min(totals)


def wait(device: torch.device) -> None:
    """Wait until the device has finished."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()
