"""What only a GPU has: one CUDA graph per input shape, and a second stream.

With a graph the host issues a forward pass in one go. Recording costs four passes, so a shape is
recorded when it comes twice in a row: a scene's full batches are, its last one is not. When there
are too many graphs, the one that was unused for longest is dropped.

Inputs are copied into the graph's own buffers, and results are copied out of them, so that the next
batch does not overwrite a result. Threads take turns, because those buffers are
shared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree

GRAPHS_KEPT = 8
"""Graphs kept at a time."""
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
        self.recorded: dict[object, _Recorded] = {}  # in the order of use, the latest last
        self.latest: object = None
        self.pool: Any = None  # torch's handle
        self.lock = Lock()

    def __reduce__(self) -> tuple[type[Graphs], tuple[()]]:
        """A copy records anew: graphs belong to the memory that they were recorded in."""
        return Graphs, ()

    def __call__(self, run: Run, *tensors: Tensor | None, k: int) -> object:
        """Run the function, through a graph if there is one or the shape is worth one.

        Args:
            run: The function, the same in every call. It is not stored here: it holds the engine,
                and the engine holds this object.
            tensors: Its arguments, each a tensor or None.
            k: Its only argument that is a number.

        Returns:
            What the function returns, any nest of tensors.
        """
        key = (k, *(None if t is None else (t.shape, t.dtype) for t in tensors))
        with self.lock:
            again, self.latest = key == self.latest, key
            if key not in self.recorded:
                if not again:
                    return run(*tensors, k=k)
                self._make_room()
                self.recorded[key] = self._record(run, tensors, k)
            recorded = self.recorded[key] = self.recorded.pop(key)
            for there, here in zip(recorded.inputs, tensors, strict=True):
                if there is not None and here is not None:
                    there.copy_(here, non_blocking=True)
            recorded.graph.replay()
            return _pytree.tree_map(
                lambda t: t.clone() if isinstance(t, Tensor) else t, recorded.output
            )

    def _make_room(self) -> None:
        while len(self.recorded) >= GRAPHS_KEPT:
            torch.cuda.synchronize()  # a graph that still runs must not be destroyed
            del self.recorded[next(iter(self.recorded))]

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
        self.pool = self.pool or torch.cuda.graph_pool_handle()
        # thread_local: another thread may pin memory for the next batch meanwhile.
        with torch.cuda.graph(graph, pool=self.pool, capture_error_mode="thread_local"):
            output = run(*inputs, k=k)
        return _Recorded(graph, inputs, output)


class SideStream:
    """A second stream, for what can begin earlier than it is needed; without a GPU it does nothing.

    Tensors that it reads must live until `join`; otherwise their memory may be reused.
    """

    def __init__(self, device: torch.device) -> None:
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    @contextmanager
    def fork(self) -> Iterator[None]:
        """Run the body on the second stream, beside what follows it."""
        if self.stream is None:
            yield
            return
        self.stream.wait_stream(torch.cuda.current_stream(self.stream.device))
        with torch.cuda.stream(self.stream):
            yield

    def join(self) -> None:
        """Wait, on the device, for what was forked."""
        if self.stream is not None:
            torch.cuda.current_stream(self.stream.device).wait_stream(self.stream)
