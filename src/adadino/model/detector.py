"""What AdaDINO, its engine and its peers share: one signature, one result, one way to ask."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn

from adadino.config import BSCSConfig, Config
from adadino.model.cgla import Responses
from adadino.model.inputs import ImageLike, to_tensor
from adadino.model.sizes import Sizes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from adadino.domain import Domain


class Output(NamedTuple):
    """What a forward pass returns; nothing is kept on the model."""

    logits: Tensor
    """Final prediction (B, 2, H, W), float32: unchanged, changed."""
    pyramid: list[Tensor]
    """P_2..P_5 (B, 2, h_r, w_r), finest first, over the padded input."""
    responses: Responses | None
    """CGLA's responses (B, depths, h, w); None without CGLA."""
    scores: Tensor | None
    """The policy's scores (B, blocks, C); None where no policy ran."""
    classes: Tensor | None = None
    """Logits of the classes (B, 2, classes, H, W), first and second date; None without classes."""


class Normalize(nn.Module):
    """Subtract the mean and divide by the deviation of each channel, always in float32."""

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        super().__init__()
        self.values = {"mean": mean, "std": std}
        self.mean: Tensor
        self.std: Tensor
        for name, value in self.values.items():
            self.register_buffer(name, torch.tensor(value).view(3, 1, 1), persistent=False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        # Follow the model to its device, but not to bf16: a mean of three digits costs accuracy.
        held = {name: getattr(self, name) for name in self.values}
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]  # torch leaves it bare
        for name, value in self.values.items():
            moved = getattr(self, name)
            if moved is not held[name]:  # what stayed may be part of a recorded CUDA graph
                setattr(self, name, torch.tensor(value, device=moved.device).view(3, 1, 1))
        return self

    def forward(self, images: Tensor) -> Tensor:
        """(B, 3, H, W) in [0, 1] -> what the backbone's weights expect."""
        return (images - self.mean) / self.std


class Detector(nn.Module):
    """A model that finds change: `forward(before, after)` is the subclass's.

    The model owns its preprocessing: images come in as RGB in [0, 1], of any size, and the
    normalisation that belongs to its weights is part of it. Whoever runs a model asks what it can
    do (`dino`, `bscs`, `precision`), not which class it is.
    """

    backbone_path: ClassVar[str | None] = None
    """Where in the model the DINOv3 backbone is; None for a model without one."""
    fits: ClassVar[bool] = False
    """Whether it judges a scene by the scene's own statistics, and learns nothing before."""
    sizes: Sizes = Sizes()
    """How images and maps are padded, cut and resized; an exported model has another way."""

    config: Config
    normalize: Normalize
    stride: int
    """What height and width are padded to."""
    precision: str | None = None
    """The arithmetic of an engine: fp32, bf16, fp8 or int8. None for a plain model."""
    temperature: float = 1.0
    """What log-odds are divided by, so that probabilities are calibrated; 1 leaves them alone."""
    domain: Domain | None = None
    """What it was trained on, if its card says."""
    came_with_backbone: bool = False
    """Whether the checkpoint it was loaded from holds the frozen backbone too."""
    ancestors: tuple[dict[str, Any], ...] = ()
    """The trained models that its training started from, the oldest first; a checkpoint keeps them.
    Each has a `model` and a `digest`."""

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.normalize.mean.device

    @property
    def dino(self) -> nn.Module | None:
        """The DINOv3 backbone, if the model stands on one."""
        return None if self.backbone_path is None else self.get_submodule(self.backbone_path)

    @property
    def bscs(self) -> BSCSConfig | None:
        """How the model selects FFN chunks; None for a peer, which has none to select."""
        return None

    @property
    def owns_backbone(self) -> bool:
        """Whether its checkpoint holds the backbone: no other file has it, or so it was loaded."""
        return self.config.backbone.trainable or self.came_with_backbone

    @property
    def ffn_layers(self) -> list[nn.Module]:
        """The backbone's feed-forward layers that chunk selection makes cheaper, in order."""
        return []

    def unrecorded(
        self, before: Tensor, after: Tensor, *, k: int | None = None, chunks: Tensor | None = None
    ) -> Output:
        """`forward` without a CUDA graph: for a shape that comes once, or to see every kernel."""
        output: Output = self(before, after, k=k, chunks=chunks)
        return output

    def probability(
        self, before: Tensor, after: Tensor, *, k: int | None = None, chunks: Tensor | None = None
    ) -> Tensor:
        """Probability of change (B, H, W), float32, of batches as `forward` takes them."""
        output: Output = self(before, after, k=k, chunks=chunks)
        return self.calibrated(output.logits)

    def calibrated(self, logits: Tensor) -> Tensor:
        """Logits (B, 2, H, W) -> probability of change (B, H, W), calibrated if the model is."""
        scaled = logits if self.temperature == 1.0 else logits / self.temperature
        return scaled.softmax(1)[:, 1]

    @torch.inference_mode()
    def predict(
        self, before: ImageLike, after: ImageLike, *, k: int | None = None
    ) -> NDArray[np.float32]:
        """Probability of change of every pixel of one pair.

        Args:
            before: The first date: array, tensor, PIL image or path; of a model with bands of its
                own, an array of them (N, H, W) in 0..1.
            after: The second date, of the same size.
            k: FFN chunks to execute, if not the configuration's; AdaDINO only.

        Returns:
            An array (H, W) in [0, 1].
        """
        count = self.config.bands.count
        images = (to_tensor(before, "before", count), to_tensor(after, "after", count))
        training = self.training
        self.eval()
        try:
            found = self.probability(*(image[None].to(self.device) for image in images), k=k)
        finally:
            self.train(training)
        probability: NDArray[np.float32] = found[0].cpu().numpy()
        return probability

    def components(self) -> dict[str, nn.Module]:
        """The parts that have parameters, by name."""
        parts = self.named_children()
        return {name: part for name, part in parts if next(part.parameters(), None) is not None}
