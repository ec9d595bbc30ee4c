"""A block of Titans: what the memory says, attention inside a sliding window, and an FFN.

A. Behrouz et al., 2025 (`memory.py`), as released with ChangeTitans. Tokens are read row by row.
Attention sees four learned tokens, the token itself and the 32 before it; its values are mixed with
those of the first block. What the memory says is added to the tokens, or gates what attention says.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from adadino.peers.base import DropPath
from adadino.peers.memory import NeuralMemory, Weights

HEADS, HEAD = 8, 64
WINDOW = 32
LEARNED = 4
"""Tokens that every other one sees."""


class State(NamedTuple):
    """What a block hands to the next one."""

    memory: Weights | None = None
    """The weights of the last memory, after each chunk."""
    values: Tensor | None = None
    """The values of the first block's attention."""


class WindowAttention(nn.Module):
    """Causal attention to the last 32 tokens, the token itself, and learned ones."""

    def __init__(self, width: int, *, first: bool) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(width)
        self.qkv = nn.Linear(width, 3 * HEADS * HEAD, bias=False)
        self.mix = None if first else nn.Linear(width, HEADS)
        self.learned = nn.Parameter(torch.zeros(2, HEADS, LEARNED, HEAD))
        self.proj = nn.Linear(HEADS * HEAD, width, bias=False)

    def forward(self, x: Tensor, earlier: Tensor | None) -> tuple[Tensor, Tensor]:
        """Tokens (B, L, C) -> the same, and its own values."""
        length = x.shape[1]
        x = self.norm(F.pad(x, (0, 0, 0, -length % WINDOW)))
        q, k, v = self.qkv(x).unflatten(-1, (3, HEADS, HEAD)).permute(2, 0, 3, 1, 4)
        own = v  # (B, heads, L', 64)
        if self.mix is not None and earlier is not None:
            v = torch.lerp(v, earlier, torch.sigmoid(self.mix(x)).transpose(1, 2).unsqueeze(-1))
        q, k = _turn(q), _turn(k)
        # (B, heads, L', 64) -> (B, windows, heads, 32, 64)
        q, k, v = (t.unflatten(2, (-1, WINDOW)).transpose(1, 2) for t in (q, k, v))
        k, v = (
            self._with_previous(t, fixed) for t, fixed in zip((k, v), self.learned, strict=True)
        )
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=_visible(q.shape[1], x.device))
        y = y.transpose(2, 3).flatten(3).flatten(1, 2)[:, :length]
        return self.proj(y), own

    @staticmethod
    def _with_previous(t: Tensor, learned: Tensor) -> Tensor:
        """Windows (B, w, heads, 32, 64), the window before each and the learned tokens in front."""
        before = F.pad(t, (0, 0, 0, 0, 0, 0, 1, 0))[:, :-1]
        fixed = learned.to(t.dtype).expand(*t.shape[:2], -1, -1, -1)
        return torch.cat((fixed, before, t), dim=3)


def _visible(windows: int, device: torch.device) -> Tensor:
    """What a token of each window sees: (windows, 1, 32, 4 + 32 + 32)."""
    place = torch.arange(WINDOW, device=device)
    before = place[None] >= place[:, None]  # 32 tokens back and no further
    seen = torch.cat((before.new_ones(WINDOW, LEARNED), before, place[None] <= place[:, None]), 1)
    later = torch.arange(windows, device=device) > 0  # the first window has none before it
    part = torch.arange(seen.shape[1], device=device)
    empty = (part >= LEARNED) & (part < LEARNED + WINDOW)
    return (seen & (later[:, None, None] | ~empty))[:, None]


def _turn(x: Tensor) -> Tensor:
    """Rotary positions of tokens (B, heads, L, 64); neighbouring channels turn together."""
    kind = torch.promote_types(x.dtype, torch.float32)
    place = torch.arange(x.shape[2], device=x.device, dtype=kind)
    speed = 10_000 ** (-torch.arange(0, HEAD, 2, device=x.device, dtype=kind) / HEAD)
    angle = (place[:, None] * speed).repeat_interleave(2, dim=-1)
    turned = torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2)
    return x * angle.cos().to(x.dtype) + turned * angle.sin().to(x.dtype)


class GatedFFN(nn.Module):
    """RMSNorm, then a linear layer whose half gates the other, then one back."""

    def __init__(self, width: int) -> None:
        super().__init__()
        hidden = 8 * width // 3
        self.norm = nn.RMSNorm(width)
        self.up = nn.Linear(width, 2 * hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        """(B, L, C) -> the same."""
        value, gate = self.up(self.norm(x)).chunk(2, dim=-1)
        return self.down(F.silu(gate) * value)


class TitansBlock(nn.Module):
    """Memory (where there is one), attention, FFN."""

    def __init__(
        self,
        width: int,
        *,
        first: bool,
        memory: NeuralMemory | None = None,
        gates: bool = False,
        drop_path: float = 0.0,
    ) -> None:
        """Make a block.

        Args:
            width: Channels of a token.
            first: Whether the block is the first of a row, whose values the others mix in.
            memory: The memory.
            gates: Whether the memory gates attention; otherwise it is added.
            drop_path: Share of the samples that leave a branch out while training.
        """
        super().__init__()
        self.memory, self.gates = memory, gates
        self.attention = WindowAttention(width, first=first)
        self.ffn = GatedFFN(width)
        self.memory_scale = None
        if memory is not None and not gates:
            self.memory_scale = nn.Parameter(torch.ones(width))
        self.attention_scale = nn.Parameter(torch.ones(width))
        self.ffn_scale = nn.Parameter(torch.ones(width))
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """Tokens (B, L, C) -> the same, and what the next block is told."""
        told, gate = state.memory, None
        if self.memory is not None:
            said, told = self.memory(x, state.memory)
            if self.memory_scale is not None:
                x = x + self.drop_path(self.memory_scale * said)
            else:
                gate = torch.sigmoid(said)
        y, values = self.attention(x, state.values)
        y = y if gate is None else y * gate
        x = x + self.drop_path(self.attention_scale * y)
        x = x + self.drop_path(self.ffn_scale * self.ffn(x))
        return x, State(told, values if state.values is None else state.values)
