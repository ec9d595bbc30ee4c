"""The engine, wired: it takes the model's arguments and returns the model's result.

It holds copies of the weights, so later changes to the model do not reach it. It cannot be trained.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from typing import Literal, Self, cast

import torch
from torch import Tensor, nn

from adadino.config import BSCSConfig, Config
from adadino.engine.cache import keep_compiled
from adadino.engine.cuda import Graphs
from adadino.engine.decoder import FastDecoder
from adadino.engine.encoder import FastEncoder
from adadino.engine.rows import Kind
from adadino.errors import ConfigError
from adadino.model.adadino import AdaDINO
from adadino.model.backbone import cut_patches
from adadino.model.detector import Detector, Output
from adadino.model.inputs import check_pair, pad_to_stride

Precision = Literal["auto", "fp32", "bf16", "fp8", "int8"]


class Engine(Detector):
    """AdaDINO for inference. Make one with `optimize`."""

    backbone_path = "encoder"

    def __init__(
        self, model: AdaDINO, *, precision: Precision, compile: bool, cuda_graph: bool
    ) -> None:
        super().__init__()
        self.config, self.stride, self.precision = model.config, model.stride, precision
        self.domain, self.temperature = model.domain, model.temperature
        dtype = torch.float32 if precision == "fp32" else torch.bfloat16
        kind: Kind | None = precision if precision in ("fp8", "int8") else None
        self.dtype = dtype
        self.normalize = deepcopy(model.normalize)
        self.encoder = FastEncoder(model.encoder, dtype=dtype, kind=kind)
        self.decoder = FastDecoder(model, dtype=dtype, compile=compile)
        self.graphs = Graphs() if cuda_graph else None
        # Functions, not bound methods: an engine that holds itself would hold its memory.
        self._cut = torch.compile(Engine.patches, dynamic=False) if compile else Engine.patches
        self.eval()
        self.requires_grad_(False)

    @property
    def bscs(self) -> BSCSConfig:
        """How the model selects FFN chunks."""
        return self.config.bscs

    @property
    def ffn_layers(self) -> list[nn.Module]:
        """See `Detector.ffn_layers`; chunks are gathered beside the attention, not in them."""
        return [block.get_submodule("ffn") for block in self.encoder.blocks]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        held = self.normalize.mean
        for dtype in {torch.float32, self.dtype}:
            if fn(torch.empty(0, dtype=dtype, device=held.device)).dtype != dtype:
                raise ConfigError(
                    f"an engine in {self.precision} keeps its types; make another one: "
                    "adadino.optimize(model, precision=...)."
                )
        if self.precision == "int8" and fn(held.new_empty(0)).device.type != "cpu":
            raise ConfigError("an engine in int8 is for CPUs; make another one: fp8 or bf16.")
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]  # torch leaves it bare
        if self.normalize.mean is not held:  # moved: recorded graphs read the old addresses
            self.graphs = None if self.graphs is None else Graphs()
            self.encoder.settle()
        return self

    def train(self, mode: bool = True) -> Self:
        """Stay in eval mode: there is nothing to train."""
        return super().train(False)

    def forward(
        self, before: Tensor, after: Tensor, *, k: int | None = None, chunks: Tensor | None = None
    ) -> Output:
        """Find the change between two batches of images; see `AdaDINO.forward`."""
        return self._answer(before, after, k, chunks, graphs=self.graphs)

    def unrecorded(
        self, before: Tensor, after: Tensor, *, k: int | None = None, chunks: Tensor | None = None
    ) -> Output:
        """See `Detector.unrecorded`."""
        return self._answer(before, after, k, chunks, graphs=None)

    def _answer(
        self,
        before: Tensor,
        after: Tensor,
        k: int | None,
        chunks: Tensor | None,
        *,
        graphs: Graphs | None,
    ) -> Output:
        check_pair(before, after)
        k = self.config.bscs.budget(k)
        # Not inference_mode: a graph's buffers outlive the call, and could then not be written
        # outside of that mode. The tensors' device is made current, because Triton and graphs use
        # the current one. Autocast is off, because the engine has chosen its types.
        off = torch.autocast(before.device.type, enabled=False)
        with torch.inference_mode(False), torch.no_grad(), _current(before.device), off:
            if graphs is None or not before.is_cuda:
                return self.run(before, after, chunks, k=k)
            return cast(Output, graphs(self.run, before, after, chunks, k=k))

    def run(self, before: Tensor, after: Tensor, chunks: Tensor | None, *, k: int) -> Output:
        """The forward pass itself: what a graph records."""
        images = pad_to_stride(torch.cat((before, after)).float(), self.stride)
        grid = images.shape[-2] // self.stride, images.shape[-1] // self.stride
        encoding = self.encoder(self._cut(self, images), grid, k=k, chunks=chunks)
        return self.decoder(encoding, images, (before.shape[-2], before.shape[-1]))

    def patches(self, images: Tensor) -> Tensor:
        """Enlarge, normalise and cut images (2B, 3, H, W) into patches (2B, hw, 3 p p)."""
        images = self.normalize(self.sizes.enlarge(images, self.config.scale)).to(self.dtype)
        return cut_patches(images, self.config.backbone.patch)


def runs(config: Config) -> bool:
    """Whether the engine runs models of a configuration."""
    return not config.bands.names and config.enlarge == 1


def optimize(
    model: Detector,
    *,
    precision: Precision = "auto",
    compile: bool | None = None,
    cuda_graph: bool | None = None,
) -> Engine:
    """Make the engine of a model, on the device where the model is.

    Args:
        model: An AdaDINO; it is copied, not changed.
        precision: `bf16`; `fp8` with the frozen weights in e4m3; `fp32`; `int8` for CPUs; `auto`
            is bf16 where the device computes in it, else fp32.
        compile: Compile the decoder and the preparation of pixels; by default on a GPU. It makes
            the first call slow, once per machine: what is compiled is kept (`engine/cache.py`).
        cuda_graph: Replay one CUDA graph per input shape; by default on a GPU.

    Raises:
        ConfigError: The model or its device does not allow it; the message says why.
    """
    if not isinstance(model, AdaDINO):
        kind = "is a peer" if model.precision is None else "is an engine already"
        raise ConfigError(f"the engine runs AdaDINO; this model {kind}.")
    if not runs(model.config):
        raise ConfigError(
            "the engine runs models of red, green and blue at the images' own size, this one has "
            "bands of its own or enlarges; run it as it is (engine auto or off)."
        )
    device = model.device
    cuda = device.type == "cuda"
    if cuda_graph and not cuda:
        raise ConfigError(f"cuda_graph needs an NVIDIA GPU, the model is on {device}; drop it.")
    if precision == "auto":
        precision = "bf16" if computes_bf16(device) else "fp32"
    if precision not in ("fp32", "bf16", "fp8", "int8"):
        raise ConfigError(f"precision is {precision!r}, must be auto, fp32, bf16, fp8 or int8.")
    if precision == "int8" and device.type != "cpu":
        raise ConfigError(f"precision int8 is for CPUs, the model is on {device}; use fp8 or bf16.")
    if precision == "fp8" and cuda and torch.cuda.get_device_capability(device) < (8, 9):
        raise ConfigError("precision fp8 needs an NVIDIA GPU of compute capability 8.9; use bf16.")
    keep_compiled()
    with torch.inference_mode(False):  # the engine may be used outside of inference mode later
        return Engine(
            model,
            precision=precision,
            compile=cuda if compile is None else compile,
            cuda_graph=cuda if cuda_graph is None else cuda_graph,
        )


def _current(device: torch.device) -> AbstractContextManager[object]:
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def computes_bf16(device: torch.device) -> bool:
    """Whether a device has instructions for bf16 products, and does not emulate them."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    if device.type != "cpu":
        return False
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
