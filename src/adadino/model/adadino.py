"""AdaDINO, wired: pixels -> pair-aware encoder -> difference pyramid -> decoder -> refiner.

Fig. 2 of the paper.
"""

from __future__ import annotations

from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from adadino.config import Config
from adadino.errors import ConfigError, WeightsError
from adadino.model.backbone import Backbone
from adadino.model.cpgr import CPGR
from adadino.model.detector import Detector, Normalize, Output
from adadino.model.encoder import Encoder
from adadino.model.inputs import check_pair, enlarge, pad_to_stride
from adadino.model.pyramid import Pyramid
from adadino.model.refiner import Refiner
from adadino.model.stream import Stream

if TYPE_CHECKING:
    from adadino.engine import Engine, Precision

__all__ = ["AdaDINO", "Normalize", "Output"]


class AdaDINO(Detector):
    """A change detector on a frozen DINOv3."""

    backbone_path = "encoder.backbone"

    def __init__(self, config: Config, *, backbone: Backbone | None = None) -> None:
        super().__init__()
        self.config, self.stride = config, config.stride
        self.encoder = Encoder(config, backbone=backbone)
        self.neck = Pyramid(dim=config.backbone.dim, width=config.cpgr.width)
        self.decoder = CPGR(config)
        self.refiner = Refiner() if config.cpgr.refiner else None
        self.stream = Stream(config.cpgr.width) if config.stream.name == "lite0" else None
        self.normalize = Normalize(config.backbone.mean, config.backbone.std)

    def forward(
        self,
        before: Tensor,
        after: Tensor,
        *,
        k: int | None = None,
        chunks: Tensor | None = None,
    ) -> Output:
        """Find the change between two batches of images.

        Args:
            before: First dates (B, 3, H, W), RGB in [0, 1]; any height and width.
            after: Second dates, the same shape.
            k: FFN chunks to execute, if not the configuration's; all of them is the dense model.
            chunks: Chunks to execute in every block (blocks, k), instead of choosing them per
                batch.
        """
        check_pair(before, after)
        k = self.config.bscs.budget(k)
        height, width = before.shape[-2:]
        images = self.pad(torch.cat((before, after)).float())
        encoding = self.encoder(self.prepare(images), k=k, chunks=chunks)
        differences = self.neck(encoding.features)
        evidence = None
        if self.stream is not None:
            evidence = self.stream(images.to(next(self.stream.parameters()).dtype))
            differences = self.stream.join(evidence, differences)
        pyramid = self.decoder(differences, encoding.responses)
        finest = pyramid[0].float() if self.refiner is None else self.refiner(pyramid[0])
        if self.stream is not None and evidence is not None:
            finest = self.stream.refine(finest, evidence)
        stride = self.config.stride
        padded = -(-height // stride) * stride, -(-width // stride) * stride
        logits = F.interpolate(finest, padded, mode="bilinear", align_corners=False)
        return Output(logits[..., :height, :width], pyramid, encoding.responses, encoding.scores)

    def pad(self, images: Tensor) -> Tensor:
        """Pad images (B, 3, H, W) to whole tokens."""
        return pad_to_stride(images, self.config.stride)

    def enlarge(self, images: Tensor) -> Tensor:
        """Enlarge images (B, 3, H, W) as the configuration says."""
        return enlarge(images, self.config.scale)

    def prepare(self, images: Tensor) -> Tensor:
        """Enlarge and normalise, as the encoder wants its images."""
        images = self.normalize(self.enlarge(images))
        return images.to(self.encoder.backbone.patch_embed.weight.dtype)

    @torch.inference_mode()
    def rank_chunks(self, pairs: Iterable[tuple[Tensor, Tensor]]) -> tuple[tuple[int, ...], ...]:
        """Order the FFN chunks of every block by the policy's mean score over many pairs.

        What `bscs.ranking` wants for the static and bottom selections.

        Args:
            pairs: Batches of first and second dates, as `forward` takes them.
        """
        total, count, training = torch.zeros(()), 0, self.training
        self.eval()
        try:
            for before, after in pairs:
                scores = self(before, after).scores
                if scores is None:
                    raise ConfigError(
                        f"a ranking needs the learned policy at k below {self.config.bscs.chunks}; "
                        f"this model has selection={self.config.bscs.selection}, "
                        f"k={self.config.bscs.k}."
                    )
                total = total + scores.cpu().double().sum(0)  # MPS has no float64
                count += len(scores)
        finally:
            self.train(training)
        if not count:
            raise ConfigError("a ranking needs at least one pair; give some of the training set.")
        order = (total / count).argsort(dim=1, descending=True, stable=True)
        return tuple(tuple(row) for row in order.tolist())

    def optimize(
        self,
        *,
        precision: Precision = "auto",
        compile: bool | None = None,
        cuda_graph: bool | None = None,
    ) -> Engine:
        """A fast copy of the model for inference; see `adadino.engine.optimize`."""
        from adadino.engine import optimize  # the engine is built on the model, not under it

        return optimize(self, precision=precision, compile=compile, cuda_graph=cuda_graph)

    # The hub is built on checkpoints, and those on the model: asked for when called.

    @classmethod
    def from_pretrained(cls, source: str | PathLike[str], **options: Any) -> AdaDINO:
        """Load from a folder or by hub id; options as for `adadino.load`."""
        from adadino.hub import from_pretrained

        model = from_pretrained(source, **options)
        if not isinstance(model, cls):
            raise WeightsError(f"{source} is a {type(model).__name__}; adadino.load takes it.")
        return model

    def save_pretrained(self, folder: str | PathLike[str], **options: Any) -> Path:
        """Write a folder for the hub: trained tensors, settings, card; see `adadino.hub`."""
        from adadino.hub import save_pretrained

        return save_pretrained(self, folder, **options)

    def push_to_hub(self, repo_id: str, **options: Any) -> str:
        """Upload what `save_pretrained` writes; see `adadino.hub`."""
        from adadino.hub import push_to_hub

        return push_to_hub(self, repo_id, **options)

    def components(self) -> dict[str, nn.Module]:
        """The parts by the paper's names (cpgr with the refiner), and the stream if any."""
        cpgr = [self.decoder] + ([self.refiner] if self.refiner is not None else [])
        stream = {} if self.stream is None else {"stream": self.stream}
        return {
            "backbone": self.encoder.backbone,
            "cgla": self.encoder.cgla,
            "bscs": self.encoder.bscs,
            "cpgr": nn.ModuleList(cpgr),
            "neck": self.neck,
            **stream,
        }
