"""What a caller needs of a model, whatever runs it. Never imports torch."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from adadino.bands import BandsConfig
    from adadino.config import ClassesConfig
    from adadino.domain import Domain

Selection = Literal["scene", "batch"]
EngineName = Literal["auto", "off", "bf16", "fp8", "int8"]


class Images(NamedTuple):
    """A tile's two images, holes filled and edges reflected."""

    before: NDArray[np.generic]
    """(bands, size, size), float32 in 0..1, or uint8."""
    after: NDArray[np.generic]
    valid: NDArray[np.bool_]
    """(h, w): the pixels of the tile's window that have data."""


class Answers(Protocol):
    """The probabilities of a batch, which may still be on their way."""

    def wait(self) -> NDArray[np.float32]:
        """The probabilities (B, size, size), or of a runner with classes (B, maps, size, size)."""


class Runner(Protocol):
    """Runs a model over tiles."""

    name: str
    """What the user calls the model."""
    batch: int
    """Tiles per forward pass."""
    chunks: Any
    """The FFN chunks of every block, if they were chosen for the scene."""
    warnings: list[str]
    """What the user was warned of."""
    domain: Domain | None
    """What the model was trained on, if it says."""
    classes: ClassesConfig | None
    """The classes of both dates, if they were asked for and the model tells them. An answer then
    has these maps: change, the classes of the first date, and those of the second."""
    stride: int
    """What the side of a tile must be a multiple of."""
    kind: str
    """The kind of device, and the engine's precision there: cpu, cuda, cuda bf16."""
    wanted: BandsConfig | Literal["all"] | None
    """The bands it takes: its own, all there are, or None for red, green and blue."""
    fits: bool
    """Whether it judges a scene by the statistics of the whole, and needs `fit` first."""
    threads: int
    """Threads that a worker must run for the same bits on the CPU."""

    @property
    def chooses(self) -> bool:
        """Whether chunks are to be chosen from a sample of tiles first."""

    def fit(self, before: NDArray[np.float32], after: NDArray[np.float32]) -> None:
        """Take the statistics of a scene from a sample of its pixels (N, n)."""

    def choose_chunks(self, sample: Sequence[Images]) -> None:
        """Choose the chunks."""

    def choose_batch(self) -> None:
        """Settle how many tiles go through the model at once."""

    def resume(self, *, chunks: list[list[int]] | None, batch: int) -> None:
        """Take what an interrupted run had chosen."""

    def start(self, tiles: Sequence[Images]) -> Sequence[Answers]:
        """Start the model on tiles; the answers come in their order."""

    def inference(self) -> AbstractContextManager[None]:
        """Compute no gradients in this thread, which need not be the one that opened the model."""

    def device_kind(self, name: str) -> str:
        """The kind of device that a name stands for on this machine."""

    def digest(self) -> str:
        """Name the model by its content."""

    def tags(self) -> dict[str, object]:
        """What rasters say of the model."""
