"""A torch model over batches of tiles: how many fit, and what to do when they do not.

- On the CPU a scene's tiles go one by one: a product of another shape rounds differently, and the
  result must not depend on the batch. It costs nothing there: `tiny` takes 1.02 times as long one
  by one as in fours on two cores. On a GPU the answers of different batches agree to rounding.
- On a GPU copies go through pinned memory and nothing waits: while one batch computes, the next
  is being copied in and the one before copied out and blended.
- A batch that does not fit is halved, with a warning. The CPU is used only if the user asks for it.
- On a GPU the inference engine runs in the model's place, unless the user chose otherwise.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor

from adadino import schema
from adadino.engine import for_inference
from adadino.errors import AdaDINOError, MemoryWarning
from adadino.model.bscs import top_chunks_by_block
from adadino.peers.free import TrainingFree
from adadino.runtime.devices import choose_device
from adadino.runtime.protocol import EngineName, Images, Selection

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from adadino.bands import BandsConfig
    from adadino.config import ClassesConfig
    from adadino.model.detector import Detector, Output

Answer = TypeVar("Answer")

BATCH = 4
"""The batch where nothing else decides: chunks chosen per batch must not depend on the memory."""
SHARE = 0.6
"""How much of the free memory a batch may take: the allocator's pieces need room between them."""
MOST_PIXELS = 64 * 256**2
"""A batch larger than this is no faster."""


class Pending(NamedTuple):
    """The probabilities of a batch, which may still be on their way."""

    tensor: Tensor
    """(B, size, size) in the host's memory; with classes (B, maps, size, size)."""
    arrived: torch.cuda.Event | None

    def wait(self) -> NDArray[np.float32]:
        """Wait for the probabilities."""
        if self.arrived is not None:
            self.arrived.synchronize()
        values: NDArray[np.float32] = self.tensor.numpy()
        return values


class Forward:
    """Runs the model on one device.

    Attributes:
        batch: Tiles per forward pass; smaller after the memory was full.
        chunks: The FFN chunks of every block (blocks, k), or None to choose them per batch.
        classes: The classes whose probabilities answers hold as well; None for change alone.
        warnings: What the user was warned of.
    """

    def __init__(
        self,
        network: Detector,
        *,
        tile: int,
        batch: int | None,
        selection: Selection,
        engine: EngineName,
    ) -> None:
        """Take a model where it is; see `runner.open_runner`."""
        self.model, self.network = network, for_inference(network, engine)
        self.name = network.config.peer or "AdaDINO"
        self.engine = self.network.precision
        self.device = network.device
        self._tile, self._given, self._selection = tile, batch, selection
        self.chunks: Tensor | None = None
        self.classes: ClassesConfig | None = None
        self.batch = 1
        self.warnings: list[str] = []
        self.stride, self.domain = network.stride, network.domain
        self.fits = network.fits
        bands = network.config.bands
        self.wanted: BandsConfig | Literal["all"] | None = bands if bands.names else None
        if self.fits:
            self.wanted = "all"
        self.kind = " ".join(filter(None, (self.device.type, self.engine)))
        self.threads = torch.get_num_threads()

    def digest(self) -> str:
        """Name the model by its tensors."""
        return model_digest(self.model)

    def tags(self) -> dict[str, object]:
        """What rasters say of the model."""
        config, ours = self.network.config, self.network.config.peer is None
        return {
            "ADADINO_PEER": config.peer,
            "ADADINO_BACKBONE": config.backbone.name if self.model.dino is not None else None,
            "ADADINO_ENGINE": self.engine,
            "ADADINO_K": config.bscs.k if ours else None,
            "ADADINO_SELECTION": self._selection if ours else None,
            "ADADINO_TEMPERATURE": None if self.model.temperature == 1 else self.model.temperature,
        }

    def fit(self, before: NDArray[np.float32], after: NDArray[np.float32]) -> None:
        """Take the statistics of a scene, for a model that judges by them."""
        assert isinstance(self.network, TrainingFree)
        self.network.fit(*(torch.from_numpy(date).to(self.device) for date in (before, after)))

    @property
    def chooses(self) -> bool:
        """Whether the chunks are chosen once for the scene."""
        config = self.network.config.bscs
        learned = config.selection == "learned" and config.k < config.chunks
        ours = self.network.config.peer is None  # a peer has none to choose from
        return ours and learned and self._selection == "scene"

    def choose_chunks(self, sample: Sequence[Images]) -> None:
        """Choose the chunks of every block from a sample of tiles, taken as one batch."""
        scores = self._fitting(lambda tiles: self._run(tiles).scores, sample, "the sample")
        assert scores is not None
        self.chunks = top_chunks_by_block(scores, self.network.config.bscs.k)

    def choose_batch(self) -> None:
        """Settle how many tiles go through the model at once."""
        given, scene = self._given, self._selection == "scene"
        if self.device.type == "cpu" and scene:
            self.batch = 1
        elif given is None and self.device.type == "cuda" and scene:
            self.batch = self._measured_batch()
        else:
            self.batch = given or BATCH

    def resume(self, *, chunks: list[list[int]] | None, batch: int) -> None:
        """Take what an interrupted run had chosen."""
        self.chunks = None if chunks is None else torch.tensor(chunks, device=self.device)
        self.batch = batch

    def inference(self) -> AbstractContextManager[None]:
        """Compute no gradients in this thread."""
        return torch.inference_mode()

    def device_kind(self, name: str) -> str:
        """The kind of device that a name stands for on this machine."""
        return choose_device(name).type

    def start(self, tiles: Sequence[Images]) -> list[Pending]:
        """Start the model on tiles, in batches that fit; the answers come in their order."""
        started: list[Pending] = []
        at = 0
        while at < len(tiles):
            part = tiles[at : at + self.batch]
            answer = self._fitting(self._launch, part, "a batch")
            started.append(answer)
            at += len(answer.tensor)
        return started

    def _launch(self, tiles: Sequence[Images]) -> Pending:
        output = self._run(tiles)
        probability = self.network.calibrated(output.logits).float()
        if self.classes is not None and output.classes is not None:
            told = output.classes.float().softmax(2).flatten(1, 2)  # (B, 2 classes, H, W)
            probability = torch.cat((probability[:, None], told), dim=1)
        if self.device.type != "cuda":
            return Pending(probability.cpu(), None)
        host = torch.empty(probability.shape, pin_memory=True)
        host.copy_(probability, non_blocking=True)
        arrived = torch.cuda.Event()
        arrived.record()
        return Pending(host, arrived)

    def _run(self, tiles: Sequence[Images]) -> Output:
        before = self._sent([tile.before for tile in tiles])
        after = self._sent([tile.after for tile in tiles])
        output: Output = self.network(before, after, chunks=self.chunks)
        return output

    def _sent(self, images: list[NDArray[np.generic]]) -> Tensor:
        """Stack images and bring them to the device as floats in 0..1."""
        tensors, cuda = [torch.from_numpy(image) for image in images], self.device.type == "cuda"
        shape, dtype = (len(tensors), *tensors[0].shape), tensors[0].dtype
        stacked = torch.empty(shape, dtype=dtype, pin_memory=cuda)
        there = torch.stack(tensors, out=stacked).to(self.device, non_blocking=cuda)
        return there.float().div_(255) if there.dtype == torch.uint8 else there

    def _fitting(
        self, run: Callable[[Sequence[Images]], Answer], tiles: Sequence[Images], what: str
    ) -> Answer:
        """Run on as many of the tiles as fit, from the first; remember how many those are."""
        size = len(tiles)
        while True:
            try:
                return run(tiles[:size])
            except torch.OutOfMemoryError as error:
                if size == 1:
                    side = self._tile
                    raise AdaDINOError(
                        f"the memory of {self.device} is too small for one tile of {side} x {side} "
                        "pixels; choose a smaller --tile, another --device, or --device cpu."
                    ) from error
            # Outside the handler, where the error's frames no longer hold the batch.
            self._warn(f"{what} of {size} tiles", size // 2)
            size //= 2
            self.batch = min(self.batch, size)
            if self.device.type == "cuda":
                torch.cuda.empty_cache()

    def _warn(self, what: str, size: int) -> None:
        text = f"{what} does not fit the memory of {self.device}; going on with {size}."
        if self._selection == "batch":
            text += " Chunks are chosen per batch, so this changes the result."
        self.warnings.append(text)
        warnings.warn(text, MemoryWarning, stacklevel=2)

    def _measured_batch(self) -> int:
        """How many tiles fit the free memory, from what one takes."""
        side = self._tile
        blank = torch.zeros(1, self.network.config.bands.count, side, side, device=self.device)
        # A graph would keep its memory, and the second pass would seem to take none.
        for _ in range(2):  # the first pass also loads kernels
            held = torch.cuda.memory_allocated(self.device)
            torch.cuda.reset_peak_memory_stats(self.device)
            try:
                self.network.unrecorded(blank, blank, chunks=self.chunks)
            except torch.OutOfMemoryError:
                return 1
            one = torch.cuda.max_memory_allocated(self.device) - held
        unused = torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device)
        free = torch.cuda.mem_get_info(self.device)[0] + unused
        return max(1, min(int(SHARE * free / max(one, 1)), MOST_PIXELS // side**2))


def model_digest(network: Detector) -> str:
    """Name a model by its configuration and the bytes of its tensors."""
    digest = hashlib.sha256(schema.identity_repr(network.config).encode())
    if network.temperature != 1.0:
        digest.update(f"temperature {network.temperature!r}".encode())
    for name, tensor in network.state_dict().items():
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        flat = tensor.detach().cpu().contiguous().flatten()
        digest.update(flat.view(torch.uint8).numpy().data)
    return digest.hexdigest()
