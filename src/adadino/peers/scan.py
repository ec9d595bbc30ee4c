"""The selective scan of Mamba without a compiled kernel, and the orders in which maps are scanned.

A. Gu, T. Dao, "Mamba", 2023. Each channel keeps N states, and every token says how they fade and
what they take up:

    h_t = exp(delta_t A) h_(t-1) + delta_t B_t x_t        y_t = C_t h_t

- **In parallel.** The recurrence is linear, so the tokens of a chunk are scanned for all chunks at
  once, the ends of the chunks are scanned in the same way, and each chunk adds what it inherits:
  about 16 steps for every power of 16 in the length. Nothing is divided by a product of decays,
  which could underflow, so the result is that of the loop.
- **Memory.** Only a block of tokens is ever spread out over the N states. The forward pass keeps
  the states at the beginning of each block, and the backward pass computes the others again: both
  are linear in the tokens.
- **Precision.** States are float32, whatever the inputs are.

An order is data: the places of a map in the order in which they are visited. `visit` makes a
sequence of a map for each of several orders, and `merge` adds up what each found at a place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

STEP = 16
"""Tokens that are scanned one after the other, in all chunks at once."""
BLOCK = 2**18
"""States of a block: 1 MB in float32, so that a few of them stay in a processor's cache."""

ORDERS = (
    "rows", "columns", "rows-back", "columns-back", "diagonals", "antidiagonals",
    "diagonals-back", "antidiagonals-back",
)  # fmt: skip
CROSS = ORDERS[:4]
"""VMamba's four ways (ChangeMamba)."""
BIDIRECTIONAL = ("rows", "rows-back")
"""Vision Mamba's two ways (CDMamba)."""
OMNIDIRECTIONAL = ORDERS
"""RS-Mamba's eight ways."""


def order(name: str, height: int, width: int, device: torch.device | str = "cpu") -> Tensor:
    """The places of a map (height, width), numbered row by row, in the order of a scan: (hw,)."""
    places = torch.arange(height * width, device=device).view(height, width)
    way, _, back = name.partition("-")
    if way == "columns":
        places = places.t()
    elif way in ("diagonals", "antidiagonals"):
        # Each goes through all rows and comes in again on the other side, as RS-Mamba's do.
        rows = torch.arange(height, device=device)
        starts = torch.arange(width, device=device)[:, None]
        columns = starts + rows if way == "diagonals" else starts - rows
        places = rows * width + columns % width
    visited = places.flatten()
    return visited.flip(0) if back else visited


def visit(x: Tensor, names: Sequence[str]) -> Tensor:
    """A map (B, C, h, w) as sequences (B, K, C, hw), one in each of K orders."""
    height, width = x.shape[-2:]
    flat = x.flatten(2)
    orders = (order(name, height, width, x.device) for name in names)
    return torch.stack([flat[..., places] for places in orders], dim=1)


def merge(found: Tensor, names: Sequence[str], grid: tuple[int, int]) -> Tensor:
    """Sequences (B, K, C, hw) in K orders, added up where they belong: (B, C, h, w)."""
    back = [order(name, *grid, found.device).argsort() for name in names]
    placed = [found[:, k][..., places] for k, places in enumerate(back)]
    return torch.stack(placed).sum(0).unflatten(-1, grid)


def selective_scan(x: Tensor, delta: Tensor, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """Run the recurrence over the last dimension.

    Args:
        x: What comes in (B, K, D, L), for K groups of D channels.
        delta: Steps (B, K, D, L), positive.
        a: Rates (K, D, N), negative.
        b: What the states take up, (B, K, N, L), the same for the channels of a group.
        c: What is read from them, likewise.

    Returns:
        What is read, (B, K, D, L), of x's type.
    """
    given = tuple(t.float() for t in (x, delta, a, b, c))
    if torch.is_grad_enabled() and any(t.requires_grad for t in given):
        return _Scan.apply(*given).to(x.dtype)  # type: ignore[no-untyped-call]
    return _forward(*given)[0].to(x.dtype)


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *given: Tensor) -> Tensor:
        out, starts = _forward(*given)
        ctx.save_for_backward(*given, *starts)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        x, delta, a, b, c, *starts = ctx.saved_tensors
        return _backward(x, delta, a, b, c, starts, gradients[0].float())


def linear_scan(decay: Tensor, taken: Tensor) -> Tensor:
    """h_t = decay_t h_(t-1) + taken_t along the first dimension, from h = 0.

    Both tensors are overwritten: the result lies where `taken` was, or in a copy of it.
    """
    length = len(decay)
    if length <= STEP:
        for t in range(1, length):
            taken[t].addcmul_(decay[t], taken[t - 1])
        return taken
    chunks = -(-length // STEP)
    if missing := chunks * STEP - length:
        still = decay.new_zeros(missing, *decay.shape[1:])
        decay, taken = torch.cat((decay, still)), torch.cat((taken, still))
    decay, taken = decay.unflatten(0, (chunks, STEP)), taken.unflatten(0, (chunks, STEP))
    for t in range(1, STEP):
        taken[:, t].addcmul_(decay[:, t], taken[:, t - 1])
        decay[:, t].mul_(decay[:, t - 1])  # what is left of the chunk's first state
    inherited = linear_scan(decay[:-1, -1].clone(), taken[:-1, -1].clone())
    taken[1:].addcmul_(decay[1:], inherited[:, None])
    return taken.flatten(0, 1)[:length]


def _blocks(x: Tensor, a: Tensor) -> list[slice]:
    """Parts of the tokens whose states are held at once."""
    tokens = x.shape[-1]
    if x.is_meta:  # nothing is held, and operations are counted: as many in one part as in many
        return [slice(0, tokens)]
    states = max(x[..., 0].numel() * a.shape[-1], 1)
    size = min(max(BLOCK // states, STEP), max(tokens, 1))
    return [slice(start, start + size) for start in range(0, tokens, size)]


def _spread(
    part: slice, x: Tensor, delta: Tensor, a: Tensor, b: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """A block, tokens first: x, delta (T, B, K, D), b (T, B, K, 1, N), decay (T, B, K, D, N)."""
    now, step = (t[..., part].movedim(-1, 0) for t in (x, delta))
    up = b[..., part].movedim(-1, 0).unsqueeze(-2)
    return now, step, up, torch.exp(step.unsqueeze(-1) * a)


def _states(decay: Tensor, taken: Tensor, start: Tensor) -> Tensor:
    """The states (T, ...) of a block that begins in the state `start`; overwrites both tensors."""
    taken[0].addcmul_(decay[0], start)
    return linear_scan(decay, taken)


def _forward(
    x: Tensor, delta: Tensor, a: Tensor, b: Tensor, c: Tensor
) -> tuple[Tensor, list[Tensor]]:
    """What is read, and the states at the beginning of each block."""
    state = x.new_zeros(*x.shape[:-1], a.shape[-1])
    read, starts = [], []
    for part in _blocks(x, a):
        starts.append(state)
        now, step, up, decay = _spread(part, x, delta, a, b)
        states = _states(decay, (step * now).unsqueeze(-1) * up, state)
        state = states[-1].clone()
        down = c[..., part].movedim(-1, 0)  # (T, B, K, N)
        read.append(torch.einsum("tbkdn,tbkn->bkdt", states, down))
    return torch.cat(read, dim=-1), starts


def _backward(
    x: Tensor, delta: Tensor, a: Tensor, b: Tensor, c: Tensor, starts: list[Tensor], out: Tensor
) -> tuple[Tensor, ...]:
    """Gradients of x, delta, a, b and c, block by block from the last."""
    to_x, to_delta, to_b, to_c = (torch.empty_like(t) for t in (x, delta, b, c))
    to_a = torch.zeros_like(a)
    later = torch.zeros_like(starts[0])  # what the block's last state gets from the next block
    blocks = _blocks(x, a)
    for part, start in zip(reversed(blocks), reversed(starts), strict=True):
        now, step, up, decay = _spread(part, x, delta, a, b)
        states = _states(decay.clone(), (step * now).unsqueeze(-1) * up, start)
        read = out[..., part].movedim(-1, 0)  # (T, B, K, D)
        to_c[..., part] = torch.einsum("tbkd,tbkdn->bknt", read, states)
        # g_t = c_t dy_t + decay_(t+1) g_(t+1): the same recurrence from the end.
        given = read.unsqueeze(-1) * c[..., part].movedim(-1, 0).unsqueeze(-2)
        given = torch.cat((given[:-1], given[-1:] + later))
        fading = torch.cat((decay[1:], torch.zeros_like(decay[:1])))
        to_state = linear_scan(fading.flip(0), given.flip(0)).flip(0)
        later = decay[0] * to_state[0]
        before = torch.cat((start[None], states[:-1]))
        to_rate = to_state * before * decay  # of delta a
        to_a += torch.einsum("tbkdn,tbkd->kdn", to_rate, step)
        to_taken = torch.einsum("tbkdn,tbkn->tbkd", to_state, up.squeeze(-2))  # of delta x
        to_b[..., part] = torch.einsum("tbkdn,tbkd->bknt", to_state, step * now)
        to_x[..., part] = (to_taken * step).movedim(0, -1)
        rate = torch.einsum("tbkdn,kdn->tbkd", to_rate, a)
        to_delta[..., part] = (to_taken * now + rate).movedim(0, -1)
    return to_x, to_delta, to_a, to_b, to_c
