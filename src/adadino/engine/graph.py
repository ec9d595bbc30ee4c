"""One CUDA graph per input shape: the host issues a forward pass in one go.

Inputs are copied into the graph's own buffers, and what it computed is copied out of them, so a
result stays what it was when the next batch runs. Threads take turns, because those buffers are
shared.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree

MOST = 8
"""Graphs kept at a time; a shape beyond them runs without one."""
WARM_UP = 3
"""Runs before recording: libraries choose their algorithms, Triton compiles."""

Run = Callable[..., object]


class _Recorded(NamedTuple):
    graph: torch.cuda.CUDAGraph
    inputs: tuple[Tensor | None, ...]
    output: object


class Graphs:
    """Records and replays one function of tensors on one device."""

    def __init__(self) -> None:
        self.recorded: dict[object, _Recorded] = {}
        self.first: torch.cuda.CUDAGraph | None = None
        self.lock = Lock()

    def __call__(self, run: Run, *tensors: Tensor | None, k: int) -> object:
        """Run the function, through a graph if there is one or room for one.

        Args:
            run: The function, always the same: it is not kept, because it keeps what keeps this.
            tensors: Its tensors, or None.
            k: Its one number.

        Returns:
            What it returns, any nest of tensors.
        """
        key = (k, *(None if t is None else (t.shape, t.dtype) for t in tensors))
        with self.lock:
            if key not in self.recorded:
                if len(self.recorded) >= MOST:
                    return run(*tensors, k=k)
                self.recorded[key] = self._record(run, tensors, k)
            recorded = self.recorded[key]
            for there, here in zip(recorded.inputs, tensors, strict=True):
                if there is not None and here is not None:
                    there.copy_(here, non_blocking=True)
            recorded.graph.replay()
            return _pytree.tree_map(
                lambda t: t.clone() if isinstance(t, Tensor) else t, recorded.output
            )

    def _record(self, run: Run, tensors: tuple[Tensor | None, ...], k: int) -> _Recorded:
        inputs = tuple(None if t is None else t.clone() for t in tensors)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UP):
                run(*inputs, k=k)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        # Replays never overlap, so all graphs may use the same memory for what lies between.
        pool = None if self.first is None else self.first.pool()
        # thread_local: another thread may pin memory for the next batch meanwhile.
        with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
            output = run(*inputs, k=k)
        self.first = self.first or graph
        return _Recorded(graph, inputs, output)
