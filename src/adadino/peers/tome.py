"""ToMe-style token merging on the frozen baseline: the efficiency rival to chunk selection.

D. Bolya et al., "Token Merging: Your ViT But Faster", ICLR 2023. Between attention and FFN of every
block the most similar tokens are merged, so later blocks have fewer to work on; nothing is trained
for it. Tokens are split into two sets in turn; each of the first finds its most similar one in the
second (by the mean of its keys over the heads); the best r pairs become one token each, their mean
weighted by how many patches each stands for; attention counts a token as often as it has patches.

The original's: all of the above, r the same in every block. Ours: class and register tokens are
kept out of it; a merged token keeps the place (RoPE) of the partner it was merged into; and each
tapped map is restored to all patches before the decoder, every patch with the token it ended up in.
With a quarter of the patches left at the end, blocks run on 62 % of them on average: about what 6
of 16 chunks cost.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from adadino.model.backbone import Attention, Block
from adadino.model.positions import rotate
from adadino.peers.frozen import FrozenPeer, Rope


class Pairing(NamedTuple):
    """Which patches of the first set (even positions) go where."""

    kept: Tensor
    """(B, n - r) positions in the first set that stay."""
    merged: Tensor
    """(B, r) positions in the first set that are merged away."""
    target: Tensor
    """(B, r) positions in the second set that they are merged into."""

    @classmethod
    def find(cls, keys: Tensor, r: int) -> Self:
        """Pair patches by their keys (B, n, C): the r best of all first-set patches."""
        keys = F.normalize(keys.float(), dim=-1)
        best, partner = (keys[:, ::2] @ keys[:, 1::2].transpose(1, 2)).max(-1)
        order = best.sort(descending=True).indices
        merged = order[:, :r]
        return cls(order[:, r:].sort(-1).values, merged, partner.gather(1, merged))

    def select(self, x: Tensor) -> Tensor:
        """Values (B, n, ..) of the patches that stay: the kept first set, then the second."""
        return torch.cat((_gather(x[:, ::2], self.kept), x[:, 1::2]), dim=1)

    def add(self, x: Tensor) -> Tensor:
        """The same, with the merged patches' values (B, n, C) added to their partners'."""
        index = self.target[..., None].expand(-1, -1, x.shape[-1])
        second = x[:, 1::2].scatter_add(1, index, _gather(x[:, ::2], self.merged))
        return torch.cat((_gather(x[:, ::2], self.kept), second), dim=1)

    def moves(self, n: int) -> Tensor:
        """(B, n): the new position of each of n patches."""
        stay = self.kept.shape[1]
        new = self.kept.new_empty(self.kept.shape[0], n)
        new[:, 1::2] = stay + torch.arange(n // 2, device=new.device)
        first = new[:, ::2].scatter(1, self.merged, stay + self.target)
        places = torch.arange(stay, device=new.device).expand_as(self.kept)
        new[:, ::2] = first.scatter(1, self.kept, places)
        return new


class Tokens(NamedTuple):
    """The tokens as they are now, and what each stands for. Prefix tokens come first."""

    x: Tensor
    """(B, N, D)."""
    weight: Tensor
    """(B, N, 1): patches in each token, float32."""
    place: Tensor
    """(B, N): the original token whose place each has."""
    source: Tensor
    """(B, hw): which patch token each original patch is in now."""

    def merge(self, keys: Tensor, *, prefix: int, r: int) -> Tokens:
        """Merge r pairs of patches by their keys (B, N, C)."""
        pairing = Pairing.find(keys[:, prefix:], r)
        weight = pairing.add(self.weight[:, prefix:])
        # In float32: a sum of many tokens, and counts that bf16 would round.
        sums = pairing.add(self.x[:, prefix:].float() * self.weight[:, prefix:])
        patches = (sums / weight).to(self.x.dtype)
        moves = pairing.moves(keys.shape[1] - prefix)
        return Tokens(
            torch.cat((self.x[:, :prefix], patches), dim=1),
            torch.cat((self.weight[:, :prefix], weight), dim=1),
            torch.cat((self.place[:, :prefix], pairing.select(self.place[:, prefix:])), dim=1),
            moves.gather(1, self.source),
        )

    def restore(self, prefix: int) -> Tensor:
        """Tokens (B, prefix + hw, D): every patch with the token it is in."""
        return torch.cat((self.x[:, :prefix], _gather(self.x[:, prefix:], self.source)), dim=1)


def attend(attention: Attention, x: Tensor, rope: Rope, weight: Tensor) -> tuple[Tensor, Tensor]:
    """The backbone's attention over tokens that stand for several patches each.

    Mirrors `model.backbone.Attention.forward`; tests/peers/test_frozen.py holds the two equal.

    Args:
        attention: The block's attention, whose weights are used.
        x: Tokens (B, N, D).
        rope: Cosine and sine of each token's place, (B, N, head_dim); None if it is learned.
        weight: Patches in each token (B, N, 1).

    Returns:
        The attended tokens, and the mean of the keys over the heads (B, N, head_dim).
    """
    qkv = F.linear(x, attention.qkv.weight, attention.qkv_bias)
    q, k, v = qkv.unflatten(-1, (3, attention.heads, -1)).unbind(2)  # 3 x (B, N, heads, C)
    mean_key = k.mean(2)
    if rope is not None:
        cos, sin = (table[:, :, None].to(qkv.dtype) for table in rope)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
    read = F.scaled_dot_product_attention(
        q.transpose(1, 2),
        k.transpose(1, 2),
        v.transpose(1, 2),
        # log m added to a key's scores is m copies of the key.
        attn_mask=weight.log().transpose(1, 2)[:, None].to(qkv.dtype),  # (B, 1, 1, N)
    )
    return attention.proj(read.transpose(1, 2).flatten(2)), mean_key


class ToMe(FrozenPeer):
    """The frozen baseline on ever fewer tokens."""

    left = 0.25
    """Share of the patches that is left behind the last block; 1 merges nothing."""

    def encode(self, images: Tensor) -> list[Tensor]:
        """Normalised images (2B, 3, H, W) -> four maps (2B, D, h, w), shallow to deep."""
        grid, prefix = self.backbone.grid(images), self.config.backbone.prefix
        tables = self.backbone.rope(*grid)
        tokens = _start(self.backbone.embed(images), prefix)
        patches, depth = grid[0] * grid[1], self.config.backbone.depth
        merged = 0
        features = []
        for index in range(depth):
            wanted = round((1 - self.left) * patches * (index + 1) / depth)
            # A block can merge at most the first set, and a second one must be there.
            r = min(wanted - merged, (patches - merged) // 2)
            tokens = self.merging_step(index, tokens, tables, r)
            merged += r
            if index in self.config.taps:
                features.append(self.backbone.to_map(tokens.restore(prefix), grid))
        return features

    def merging_step(self, index: int, tokens: Tokens, tables: Rope, r: int) -> Tokens:
        """One block: attend, merge r pairs, FFN."""
        block = self.backbone.blocks[index]
        assert isinstance(block, Block)
        rope = None if tables is None else (tables[0][tokens.place], tables[1][tokens.place])
        read, keys = attend(block.attn, block.norm1(tokens.x), rope, tokens.weight)
        tokens = tokens._replace(x=tokens.x + read * block.ls1)
        if r:
            tokens = tokens.merge(keys, prefix=self.config.backbone.prefix, r=r)
        return tokens._replace(x=tokens.x + block.ffn(block.norm2(tokens.x)) * block.ls2)


def _start(x: Tensor, prefix: int) -> Tokens:
    B, N, _ = x.shape
    every = torch.arange(N, device=x.device).expand(B, -1)
    return Tokens(
        x,
        torch.ones(B, N, 1, device=x.device),
        every,
        every[:, : N - prefix],
    )


def _gather(x: Tensor, index: Tensor) -> Tensor:
    """Rows (B, m, ..) of x (B, n, ..) at index (B, m)."""
    index = index.reshape(*index.shape, *(1,) * (x.ndim - 2))
    return x.gather(1, index.expand(-1, -1, *x.shape[2:]))
