"""Titans' neural memory: a small network whose weights learn while a sequence is read.

A. Behrouz, P. Zhong, V. Mirrokni, "Titans: Learning to Memorize at Test Time", 2025. The memory is
an MLP of two layers behind a norm, added to what it is asked. A sequence is read in chunks. Each
token's key should give its value; the gradient of that error is the surprise, and

    m_t = theta_t m_(t-1) - eta_t surprise_t        w_t = (1 - alpha_t) w_(t-1) + m_t

for every chunk t. What a chunk is asked is answered by the weights of the chunk before it. Rates,
momentum and decay are read from the tokens. Surprise is taken at the weights with which a batch of
1,024 tokens began, so the chunks of a batch can be read at once.

As released with ChangeTitans: one head, chunks pooled by attention, rates up to 0.1, a modulation
for each of the three tensors, keys and queries behind RMSNorm; later memories see the weights of an
earlier one. The gradient is written out here, in the place of `torch.func.grad` in a `vmap`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

BATCH = 1024
"""Tokens between two moments at which surprise is taken at new weights."""
EXPANSION = 4
LARGEST_RATE = 0.1


class Weights(NamedTuple):
    """The memory's tensors; any number of them, (..., d), (..., d, 4d) and (..., 4d, d)."""

    gain: Tensor
    up: Tensor
    down: Tensor


def recall(weights: Weights, x: Tensor) -> Tensor:
    """Ask the memory (..., c, d) -> (..., c, d)."""
    out = F.gelu(x @ weights.up) @ weights.down
    normed = F.layer_norm(out, out.shape[-1:])
    return normed * (weights.gain + 1).unsqueeze(-2) + x


def surprise(weights: Weights, keys: Tensor, values: Tensor, rate: Tensor) -> Weights:
    """Gradient of sum_t rate_t mean((recall(key_t) - value_t)^2) with respect to the weights.

    Args:
        weights: The memory.
        keys: (..., c, d).
        values: The same shape.
        rate: (..., c, 1).
    """
    inner = keys @ weights.up
    hidden = F.gelu(inner)
    out = hidden @ weights.down
    mean = out.mean(-1, keepdim=True)
    scale = (out.var(-1, keepdim=True, unbiased=False) + 1e-5).rsqrt()
    normed = (out - mean) * scale
    gain = (weights.gain + 1).unsqueeze(-2)
    to_answer = 2 / keys.shape[-1] * rate * (normed * gain + keys - values)
    to_normed = to_answer * gain
    along = (to_normed * normed).mean(-1, keepdim=True)
    to_out = scale * (to_normed - to_normed.mean(-1, keepdim=True) - normed * along)
    slope = (1 + torch.erf(inner / math.sqrt(2))) / 2
    slope = slope + inner * torch.exp(-inner.square() / 2) / math.sqrt(2 * math.pi)
    to_inner = to_out @ weights.down.transpose(-2, -1) * slope
    return Weights(
        (to_answer * normed).sum(-2),
        keys.transpose(-2, -1) @ to_inner,
        hidden.transpose(-2, -1) @ to_out,
    )


def unit_rms(x: Tensor, gain: Tensor) -> Tensor:
    """RMSNorm with a gain that is stored without its one."""
    return F.rms_norm(x, x.shape[-1:]) * (gain + 1)


class NeuralMemory(nn.Module):
    """Read a sequence, and answer each chunk from what came before it."""

    def __init__(self, width: int, *, chunk: int, follows: bool) -> None:
        """Make a memory.

        Args:
            width: Channels of a token.
            chunk: Tokens that share momentum and decay.
            follows: Whether the weights of an earlier memory are given to `forward`.
        """
        super().__init__()
        self.chunk = chunk
        self.gain = nn.Parameter(torch.zeros(width))
        self.up = nn.Parameter(torch.empty(width, EXPANSION * width))
        self.down = nn.Parameter(torch.empty(EXPANSION * width, width))
        nn.init.xavier_uniform_(self.up)
        nn.init.xavier_uniform_(self.down)
        self.ask_norm, self.store_norm = nn.RMSNorm(width), nn.RMSNorm(width)
        self.query, self.key, self.value = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.query_gain = nn.Parameter(torch.zeros(width))
        self.key_gain = nn.Parameter(torch.zeros(width))
        self.pool = nn.Linear(width, width)
        self.rate, self.momentum, self.decay = (nn.Linear(width, 1) for _ in range(3))
        self.modulate = nn.Linear(width, len(Weights._fields))
        self.mix = nn.Linear(width, 1) if follows else None

    def forward(self, x: Tensor, earlier: Weights | None = None) -> tuple[Tensor, Weights]:
        """Tokens (B, L, d) -> answers (B, L, d), and the weights before and after each chunk."""
        learned = self.learn(x, earlier)
        B, length, width = x.shape
        count = length // self.chunk + 1
        # A token is answered by what came before it: one empty token in front.
        padded = F.pad(x, (0, 0, 1, count * self.chunk - length - 1))
        asked = unit_rms(self.query(self.ask_norm(padded)), self.query_gain)
        answers = recall(learned, asked.view(B, count, self.chunk, width))
        return answers.flatten(1, 2)[:, 1 : length + 1], learned

    def learn(self, x: Tensor, earlier: Weights | None) -> Weights:
        """Tokens (B, L, d) -> weights (B, n + 1, ...): as they were, and after each whole chunk."""
        B, length, width = x.shape
        count = length // self.chunk
        seen = self.store_norm(x[:, : count * self.chunk])
        chunks = seen.view(B, count, self.chunk, width)
        rate = LARGEST_RATE * torch.sigmoid(self.rate(chunks))  # (B, n, c, 1)
        pooled = (chunks * self.pool(chunks).softmax(2)).sum(2)  # (B, n, d)
        keys, values = unit_rms(self.key(chunks), self.key_gain), self.value(chunks)
        keep, forget = torch.sigmoid(self.momentum(pooled)), torch.sigmoid(self.decay(pooled))
        modulated = torch.sigmoid(self.modulate(pooled))  # (B, n, 3)
        weights = Weights(*(t.expand(B, *t.shape) for t in (self.gain, self.up, self.down)))
        if earlier is not None and self.mix is not None:
            mix = torch.sigmoid(self.mix(pooled))
            earlier = Weights(*(_scale(mix, t[:, :count]) for t in earlier))
        momentum = Weights(*(torch.zeros_like(t) for t in weights))
        path = [weights]
        step = BATCH // self.chunk
        for start in range(0, count, step):
            part = slice(start, min(start + step, count))
            base = Weights(*(t.unsqueeze(1) for t in weights))
            if earlier is not None:
                base = Weights(*(t + e[:, part] for t, e in zip(base, earlier, strict=True)))
            found = surprise(base, keys[:, part], values[:, part], rate[:, part])
            for t in range(part.stop - start):
                at = start + t
                momentum = Weights(
                    *(
                        _scale(keep[:, at], m) - _scale(modulated[:, at, i : i + 1], s[:, t])
                        for i, (m, s) in enumerate(zip(momentum, found, strict=True))
                    )
                )
                weights = Weights(
                    *(
                        _scale(1 - forget[:, at], w) + m
                        for w, m in zip(weights, momentum, strict=True)
                    )
                )
                path.append(weights)
        return Weights(*(torch.stack(tensors, dim=1) for tensors in zip(*path, strict=True)))


def _scale(by: Tensor, x: Tensor) -> Tensor:
    """Multiply tensors (..., *shape) by one number each (..., 1)."""
    return x * by.view(*by.shape[:-1], *(1,) * (x.ndim - by.ndim + 1))
