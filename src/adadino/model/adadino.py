"""AdaDINO, wired: pixels -> pair-aware encoder -> difference pyramid -> decoder -> refiner.

Fig. 2 of the paper. What one does with a model lives above it: `engine` makes it fast, `checkpoint`
saves and loads it, `pretrained` publishes it, `export` writes it for other programs.
"""

from __future__ import annotations

from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from adadino.config import BSCSConfig, Config
from adadino.model.backbone import Backbone
from adadino.model.bands import BandStream
from adadino.model.classes import ClassHead
from adadino.model.cpgr import CPGR
from adadino.model.detector import Detector, Normalize, Output
from adadino.model.encoder import Encoder, Encoding
from adadino.model.inputs import check_pair, pad_to_stride
from adadino.model.pair import split_dates
from adadino.model.pyramid import Pyramid, difference
from adadino.model.refiner import Refiner
from adadino.model.stream import Stream


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
        self.classes = ClassHead(config) if config.classes.names else None
        self.band_stream = BandStream(config.bands) if config.bands.names else None
        self.normalize = Normalize(config.backbone.mean, config.backbone.std)

    @property
    def bscs(self) -> BSCSConfig:
        """How the model selects FFN chunks."""
        return self.config.bscs

    @property
    def ffn_layers(self) -> list[nn.Module]:
        """See `Detector.ffn_layers`."""
        return [block.get_submodule("ffn") for block in self.encoder.backbone.blocks]

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
            before: First dates (B, 3, H, W), RGB in [0, 1], or the model's bands; any height and
                width.
            after: Second dates, the same shape.
            k: FFN chunks to execute, if not the configuration's; all of them is the dense model.
            chunks: Chunks to execute in every block (blocks, k), instead of choosing them per
                batch.
        """
        return self.encode_and_decode(before, after, k=k, chunks=chunks)[1]

    def encode_and_decode(
        self, before: Tensor, after: Tensor, *, k: int | None, chunks: Tensor | None = None
    ) -> tuple[Encoding, Output]:
        """`forward`, and what lies between its halves: the tapped features."""
        check_pair(before, after, self.config.bands.count)
        k = self.config.bscs.budget(k)
        images = self.pad(torch.cat((before, after)).float())
        seen = self.see(images)
        encoding = self.encoder(self.prepare(seen), k=k, chunks=chunks)
        height, width = before.shape[-2:]
        if seen is images:
            return encoding, decode(self, encoding, images, (height, width))
        output = decode(self, encoding, seen, (seen.shape[-2], seen.shape[-1]))
        logits = F.avg_pool2d(output.logits, self.config.enlarge)
        if self.band_stream is not None:
            logits = self.band_stream(images, logits)
        return encoding, output._replace(logits=logits[..., :height, :width])

    def see(self, images: Tensor) -> Tensor:
        """What the backbone sees of padded images: red, green and blue, enlarged if need be."""
        bands, factor = self.config.bands, self.config.enlarge
        if not bands.names and factor == 1:
            return images
        images = torch.stack([images[:, place] for place in bands.rgb], dim=1)
        size = [factor * side for side in images.shape[-2:]]
        return F.interpolate(images, size, mode="bilinear", align_corners=False)

    def pad(self, images: Tensor) -> Tensor:
        """Pad images (B, 3, H, W) to whole tokens."""
        return pad_to_stride(images, self.config.stride)

    def prepare(self, images: Tensor) -> Tensor:
        """Enlarge and normalise, as the encoder wants its images."""
        images = self.normalize(self.sizes.enlarge(images, self.config.scale))
        return images.to(self.encoder.backbone.patch_embed.weight.dtype)

    def components(self) -> dict[str, nn.Module]:
        """The parts by the paper's names (cpgr with the refiner), and those beyond it if any."""
        cpgr = [self.decoder] + ([self.refiner] if self.refiner is not None else [])
        parts = {"stream": self.stream, "bands": self.band_stream, "classes": self.classes}
        return {
            "backbone": self.encoder.backbone,
            "cgla": self.encoder.cgla,
            "bscs": self.encoder.bscs,
            "cpgr": nn.ModuleList(cpgr),
            "neck": self.neck,
            **{name: part for name, part in parts.items() if part is not None},
        }


class Decodes(Protocol):
    """Whatever has the parts behind the encoder: AdaDINO, or the engine's copies of them."""

    neck: Pyramid
    decoder: CPGR
    refiner: Refiner | None
    stream: Stream | None
    classes: ClassHead | None


def decode(parts: Decodes, encoding: Encoding, images: Tensor, size: tuple[int, int]) -> Output:
    """Everything behind the encoder: pyramid, decoder, refiner; stream and classes if any.

    Args:
        parts: The modules.
        encoding: What the encoder found.
        images: Both dates (2B, 3, H, W), padded, in [0, 1].
        size: Height and width before padding.
    """
    levels, evidence = parts.neck.levels(encoding.features), None
    differences = [difference(maps) for maps in levels]
    if parts.classes is None:
        levels = []  # their memory is free again
    if parts.stream is not None:
        evidence = parts.stream(images.to(next(parts.stream.parameters()).dtype))
        differences = parts.stream.join(evidence, differences)
    features, pyramid = parts.decoder.decode(differences, encoding.responses)
    finest = pyramid[0].float() if parts.refiner is None else parts.refiner(pyramid[0])
    if parts.stream is not None and evidence is not None:
        finest = parts.stream.refine(finest, evidence)
    logits = F.interpolate(finest, images.shape[-2:], mode="bilinear", align_corners=False)
    height, width = size
    classes = None
    if parts.classes is not None:
        found = parts.classes(levels, () if evidence is None else evidence.maps, features).float()
        found = F.interpolate(found, images.shape[-2:], mode="bilinear", align_corners=False)
        # (2B, classes, H, W) -> (B, 2, classes, H, W)
        classes = torch.stack(split_dates(found), dim=1)[..., :height, :width]
    logits = logits[..., :height, :width]
    return Output(logits, pyramid, encoding.responses, encoding.scores, classes)
