"""Soft opening and closing of the finest prediction. Sec. 3.4, App. A; 70 parameters.

The paper gives the sizes only: "soft opening 3x3 and closing 5x5". It does not say at which
resolution the refiner runs. Ours runs on P2, a quarter of the input's size, before the last
upsampling, where its windows span 12 and 20 pixels of the input. Soft dilation is
tau * logsumexp((p + w) / tau) over the window, with a learned structuring element w, and erosion
its mirror -dilation(-p). Subtracting tau * logsumexp(w / tau) makes a constant map stay what it
was, also at the borders (padding repeats the edge). The morphology's correction p' - p enters the
foreground logit with a small learned weight, so a map that opening and closing leave alone is left
alone.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Morphology(nn.Module):
    """A soft dilation followed by an erosion, or the reverse, with one window."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.dilation = nn.Parameter(torch.zeros(size * size))
        self.erosion = nn.Parameter(torch.zeros(size * size))

    def dilate(self, p: Tensor, tau: Tensor) -> Tensor:
        """Soft maximum of a map (B, 1, h, w) over the window."""
        return self._soft_maximum(p, self.dilation, tau)

    def erode(self, p: Tensor, tau: Tensor) -> Tensor:
        """Soft minimum of a map (B, 1, h, w) over the window."""
        return -self._soft_maximum(-p, self.erosion, tau)

    def _soft_maximum(self, p: Tensor, w: Tensor, tau: Tensor) -> Tensor:
        pad = self.size // 2
        padded = F.pad(p, (pad, pad, pad, pad), mode="replicate")
        windows = F.unfold(padded, self.size)  # (B, size^2, hw)
        logits = windows / tau + torch.log_softmax(w / tau, dim=0)[:, None]
        return (tau * torch.logsumexp(logits, dim=1)).view_as(p)


class Refiner(nn.Module):
    """Opening 3x3, then closing 5x5, blended into the foreground logit."""

    def __init__(self) -> None:
        super().__init__()
        self.opening = Morphology(3)
        self.closing = Morphology(5)
        self.log_tau = nn.Parameter(torch.tensor(0.1).log())
        self.blend = nn.Parameter(torch.tensor(0.1))

    def forward(self, logits: Tensor) -> Tensor:
        """Refine two-class logits (B, 2, h, w), in float32 whatever their type."""
        logits = logits.float()
        tau = self.log_tau.float().exp()
        p = torch.softmax(logits, dim=1)[:, 1:]
        opened = self.opening.dilate(self.opening.erode(p, tau), tau)
        closed = self.closing.erode(self.closing.dilate(opened, tau), tau)
        background, foreground = logits.split(1, dim=1)
        return torch.cat((background, foreground + self.blend * (closed - p)), dim=1)
