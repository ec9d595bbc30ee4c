"""CGLA-prior-guided refinement: the coarse-to-fine decoder. Sec. 3.4, Eq. 13-15.

P5 predicts from the coarsest difference alone. Each stage r = 4, 3, 2 then fuses the upsampled
coarser features with D_r under a guidance made of two parts: what the coarser prediction says of
each place (probability, uncertainty, boundary), and what CGLA saw there while encoding. Both are
detached: the guidance learns from them, and no gradient flows back into them.

The interior of the decoder is ours. The paper fixes the guidance, the width and two totals: 9.41M
parameters with the refiner, and 1278.66 GFLOPs for the model without CGLA and prior. It does not
say how guidance "modulates feature routing and fusion", nor what a stage is made of. We chose parts
that meet both totals (tests/model); other decoders would meet them too:

- G_r has 2 x width channels. One half shifts the gate that routes coarser features into the stage,
  the other scales the fusion.
- A stage ends in window attention and channel attention, each followed by a gated convolutional
  FFN. P5 has the window attention and its FFN only. Windows are 16 x 16, so attention is global at
  P5 and P4 of a 256-pixel input; there is no shift, since convolutions and the coarser stages cross
  the borders.
- `cpgr.block=lineage` has the block of ChangeDINO instead (`lineage.py`), which meets both totals
  too.
- alpha_pred starts where the paper lets alpha_prior start, at 0.05.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from adadino.config import Config, CPGRConfig
from adadino.model.cgla import Responses
from adadino.model.lineage import GLOBAL, LAYER, ConvFFN, DifferentialAttention, ScaleNorm
from adadino.model.sizes import Sizes

WINDOW = 16
COARSEST = 5
"""The level of the pyramid that is decoded first."""


class ChannelNorm(nn.LayerNorm):
    """LayerNorm over the channels of a map (B, C, h, w)."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalise every position on its own."""
        return super().forward(x.movedim(1, -1)).movedim(-1, 1)


class WindowAttention(nn.Module):
    """Self-attention inside windows of a map; a map that fits one window is attended as a whole."""

    sizes = Sizes()

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.proj = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, h, w) -> the same."""
        height, width = x.shape[-2:]
        windows, mask = self.sizes.windows(x, WINDOW)
        B, m, n, s, t, C = windows.shape
        qkv = self.qkv(windows.reshape(B * m * n, s * t, C)).unflatten(-1, (3, self.heads, -1))
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # 3 x (windows, heads, s*t, C / heads)
        x = F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2)
        x = self.proj(x).view(B, m, n, s, t, C).permute(0, 5, 1, 3, 2, 4)  # (B, C, m, s, n, t)
        return self.sizes.crop(x.reshape(B, C, m * s, n * t), height, width)


class ChannelAttention(nn.Module):
    """Attention between channels, over all positions: the transposed attention of Restormer."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Conv2d(width, 3 * width, 1, bias=False)
        self.local = nn.Conv2d(3 * width, 3 * width, 3, padding=1, groups=3 * width, bias=False)
        self.temperature = nn.Parameter(torch.ones(heads, 1, 1))
        self.proj = nn.Conv2d(width, width, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, h, w) -> the same."""
        h, w = x.shape[-2:]
        qkv = self.local(self.qkv(x)).unflatten(1, (3, self.heads, -1)).flatten(4)
        q, k, v = qkv.unbind(1)  # 3 x (B, heads, C / heads, hw)
        # Unit length in float32, because it takes a sum over thousands of positions.
        q, k = (F.normalize(t.float(), dim=-1).to(v.dtype) for t in (q, k))
        weights = ((q @ k.transpose(-2, -1)).float() * self.temperature).softmax(-1)
        return self.proj((weights.to(v.dtype) @ v).flatten(1, 2).unflatten(2, (h, w)))


class GatedFFN(nn.Module):
    """1x1 to twice the hidden width, depthwise 3x3, GELU gate, 1x1 back."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.up = nn.Conv2d(width, 2 * hidden, 1, bias=False)
        self.local = nn.Conv2d(2 * hidden, 2 * hidden, 3, padding=1, groups=2 * hidden, bias=False)
        self.down = nn.Conv2d(hidden, width, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, h, w) -> the same."""
        gate, value = self.local(self.up(x)).chunk(2, dim=1)
        return self.down(F.gelu(gate) * value)


class Residual(nn.Module):
    """A layer behind its own norm, added to what came in."""

    def __init__(self, norm: nn.Module, layer: nn.Module) -> None:
        super().__init__()
        self.norm, self.layer = norm, layer

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, h, w) -> the same."""
        return x + self.layer(self.norm(x))


def attention_block(config: CPGRConfig, level: int) -> nn.Sequential:
    """Attention over places, then between channels, each followed by an FFN.

    Args:
        config: `block` says whose.
        level: Which level of the pyramid, 5 to 2.
    """
    width, layers = config.width, list[nn.Module]()
    if config.block == "lineage":
        spatial = DifferentialAttention(
            width, heads=4, layer=LAYER[level], windows=level not in GLOBAL
        )
        layers = [spatial, ConvFFN(width), ChannelAttention(width, heads=8), ConvFFN(width)]
        return nn.Sequential(*(Residual(ScaleNorm(width), layer) for layer in layers))
    hidden = 5 * width // 2
    layers = [WindowAttention(width, heads=4), GatedFFN(width, hidden)]
    if level < COARSEST:
        layers += [ChannelAttention(width, heads=8), GatedFFN(width, hidden)]
    return nn.Sequential(*(Residual(ChannelNorm(width), layer) for layer in layers))


def psi(p: Tensor) -> Tensor:
    """Psi of Eq. 15: probability, uncertainty 4p(1-p) and boundary |Laplacian p| (B, 3, h, w)."""
    ring = F.pad(p, (1, 1, 1, 1), mode="replicate")
    around = ring[..., 2:, 1:-1] + ring[..., :-2, 1:-1] + ring[..., 1:-1, 2:] + ring[..., 1:-1, :-2]
    return torch.cat((p, 4 * p * (1 - p), (around - 4 * p).abs()), dim=1)


class Guidance(nn.Module):
    """What guides a stage: the coarser prediction and CGLA's responses, as channels."""

    def __init__(self, width: int, *, priors: int, alpha_pred: float, alpha_prior: float) -> None:
        super().__init__()
        middle = 48
        self.f_pred = nn.Sequential(
            nn.Conv2d(3, middle, 3, padding=1, bias=False),
            nn.GroupNorm(8, middle),
            nn.SiLU(),
            nn.Conv2d(middle, middle, 1, bias=False),
            nn.GroupNorm(8, middle),
            nn.SiLU(),
            nn.Conv2d(middle, 2 * width, 1),
        )
        self.alpha_pred = nn.Parameter(torch.tensor(alpha_pred))
        self.w_prior = nn.Conv2d(priors, 2 * width, 1) if priors else None
        if self.w_prior is not None:
            nn.init.zeros_(self.w_prior.weight)
            assert self.w_prior.bias is not None
            nn.init.zeros_(self.w_prior.bias)
            self.alpha_prior = nn.Parameter(torch.tensor(alpha_prior))

    def forward(self, coarser: Tensor, prior: Tensor | None, size: tuple[int, int]) -> Tensor:
        """G_r for a stage of the given size.

        Args:
            coarser: Logits (B, 2, h', w') of the coarser stage.
            prior: Aggregated responses (B, priors, h'', w'').
            size: Rows and columns of the stage.
        """
        p = torch.softmax(coarser.detach().float(), dim=1)[:, 1:]
        seen = psi(_resize(p, size)).to(coarser.dtype)
        guidance: Tensor = self.alpha_pred * self.f_pred(seen)  # Eq. 15
        if self.w_prior is not None:
            assert prior is not None
            # Eq. 14
            guidance = guidance + self.alpha_prior * self.w_prior(_resize(prior.detach(), size))
        return guidance


class Stage(nn.Module):
    """One refinement: route, fuse, attend, predict."""

    def __init__(self, config: CPGRConfig, level: int, *, priors: int) -> None:
        super().__init__()
        width = config.width
        self.guidance = Guidance(
            width, priors=priors, alpha_pred=config.alpha_pred, alpha_prior=config.alpha_prior
        )
        self.route = nn.Conv2d(2 * width, width, 1)
        self.merge = _conv_bn_silu(width)
        self.fuse = _conv_bn_silu(width)
        self.block = attention_block(config, level)
        self.head = nn.Conv2d(width, 2, 1)

    def forward(
        self, difference: Tensor, x: Tensor, coarser: Tensor, prior: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Refine coarser features `x` with the stage's difference; returns features and logits."""
        size = difference.shape[-2], difference.shape[-1]
        x = _resize(x, size)
        to_route, to_fuse = self.guidance(coarser, prior, size).chunk(2, dim=1)
        gate = torch.sigmoid(self.route(torch.cat((x, difference), dim=1)) + to_route)
        y = self.merge(difference + gate * x)
        y = y + self.fuse(y * (1 + to_fuse))
        y = self.block(y)
        return y, self.head(y)


class CPGR(nn.Module):
    """The decoder: P5, then three guided stages."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        cpgr = config.cpgr
        self.groups = config.groups
        self.priors = cpgr.prior if config.cgla.mode != "off" else ()
        self.block = attention_block(cpgr, COARSEST)
        self.head = nn.Conv2d(cpgr.width, 2, 1)
        self.stages = nn.ModuleList(
            Stage(cpgr, level, priors=len(self.priors)) for level in (4, 3, 2)
        )

    def forward(self, differences: list[Tensor], responses: Responses | None) -> list[Tensor]:
        """Decode D_2..D_5 into logits P_2..P_5, finest first, each (B, 2, h_r, w_r)."""
        return self.decode(differences, responses)[1]

    def decode(
        self, differences: list[Tensor], responses: Responses | None
    ) -> tuple[Tensor, list[Tensor]]:
        """`forward`, and before it the features (B, width, h_2, w_2) that the finest reads."""
        d2, d3, d4, d5 = differences
        x = self.block(d5)
        predictions = [self.head(x)]
        for stage, level, difference in zip(self.stages, (2, 1, 0), (d4, d3, d2), strict=True):
            prior = self.stage_prior(responses, level)
            x, logits = stage(difference, x, predictions[-1], prior)
            predictions.append(logits)
        return x, predictions[::-1]

    def stage_prior(self, responses: Responses | None, level: int) -> Tensor | None:
        """Eq. 13: the mean response of a stage's depths, one channel for each kind of prior."""
        if not self.priors or responses is None:
            return None
        group = slice(self.groups[level][0], self.groups[level][-1] + 1)
        maps = [getattr(responses, name)[:, group].mean(1, keepdim=True) for name in self.priors]
        return torch.cat(maps, dim=1)


def _conv_bn_silu(width: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.SiLU()
    )


def _resize(x: Tensor, size: tuple[int, int]) -> Tensor:
    return F.interpolate(x, size, mode="bilinear", align_corners=False)
