"""BIT: a bitemporal image transformer over a few semantic tokens.

H. Chen, Z. Qi, Z. Shi, "Remote Sensing Image Change Detection with Transformers", TGRS 2022. A
ResNet-18 gives each date a map of 32 channels at a quarter of the resolution; four spatial
attentions pool it into four tokens; one transformer layer relates the eight tokens of the pair;
eight decoder layers let every pixel read the tokens of its date; the absolute difference is
classified.

As released (S4, encoder heads of 64 channels, decoder heads of 8): the fourth ResNet stage is left
out and the third does not stride; attention is scaled by the token width, not the head's.
The paper's 3.55M counts ImageNet's classifier (513,000 parameters), which is never run and which we
do not have: without it the model has 3,037,026. The paper says that the ResNet begins with ImageNet
weights. The released code loads them and then draws every convolution anew (normal, deviation
0.02), so that only BatchNorm's running statistics are ImageNet's. Ours is random. The momentum of
the released optimiser is 0.9; the paper says 0.99.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from adadino.model.pair import split_dates
from adadino.peers.base import Peer, resize

WIDTH, TOKENS, HEADS = 32, 4, 8


class BasicBlock(nn.Module):
    """ResNet's block of two 3x3 convolutions."""

    def __init__(self, inside: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, width, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.shortcut = nn.Sequential()
        if inside != width:
            self.shortcut.append(nn.Conv2d(inside, width, 1, stride=stride, bias=False))
            self.shortcut.append(nn.BatchNorm2d(width))

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, h, w) -> (B, width, h / stride, w / stride)."""
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


def resnet18() -> nn.Sequential:
    """ResNet-18 up to its third stage, which keeps the resolution: 256 channels, stride 8."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, stride=2, padding=1),
    ]
    for inside, width, stride in ((64, 64, 1), (64, 128, 2), (128, 256, 1)):
        layers += [BasicBlock(inside, width, stride), BasicBlock(width, width, 1)]
    trunk = nn.Sequential(*layers)
    for module in trunk.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return trunk


class Layer(nn.Module):
    """Attention to a memory and an FFN, both behind a norm and added to what came in."""

    def __init__(self, *, head_dim: int) -> None:
        super().__init__()
        inner = HEADS * head_dim
        self.norm1 = nn.LayerNorm(WIDTH)
        self.query = nn.Linear(WIDTH, inner, bias=False)
        self.key = nn.Linear(WIDTH, inner, bias=False)
        self.value = nn.Linear(WIDTH, inner, bias=False)
        self.proj = nn.Linear(inner, WIDTH)
        self.norm2 = nn.LayerNorm(WIDTH)
        self.ffn = nn.Sequential(
            nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH)
        )

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        """Let x (B, N, C) read the memory (B, M, C); one norm serves both."""
        x_in, memory = self.norm1(x), self.norm1(memory)
        q, k, v = (
            linear(source).unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for linear, source in (
                (self.query, x_in),
                (self.key, memory),
                (self.value, memory),
            )
        )
        read = F.scaled_dot_product_attention(q, k, v, scale=WIDTH**-0.5)
        x = x + self.proj(read.transpose(1, 2).flatten(2))
        return x + self.ffn(self.norm2(x))


class BIT(Peer):
    """Trunk, tokenizer, token encoder, pixel decoder and classifier."""

    stride = 8

    def __init__(self) -> None:
        super().__init__()
        self.trunk = resnet18()
        self.reduce = nn.Conv2d(256, WIDTH, 3, padding=1)
        self.attend = nn.Conv2d(WIDTH, TOKENS, 1, bias=False)
        self.places = nn.Parameter(torch.randn(1, 2 * TOKENS, WIDTH))
        self.encoder = Layer(head_dim=64)
        self.decoder = nn.ModuleList(Layer(head_dim=8) for _ in range(8))
        self.head = nn.Sequential(
            nn.Conv2d(WIDTH, WIDTH, 3, padding=1, bias=False),
            nn.BatchNorm2d(WIDTH),
            nn.ReLU(inplace=True),
            nn.Conv2d(WIDTH, 2, 3, padding=1),
        )

    def compare(self, before: Tensor, after: Tensor) -> tuple[Tensor, list[Tensor]]:
        """See `Peer.compare`."""
        x = self.per_date(self.trunk, self.prepare_pair(before, after))
        x = self.reduce(F.interpolate(x, scale_factor=2.0))  # (2B, 32, H / 4, W / 4)
        tokens = self.relate(self.tokenize(x))
        grid = x.shape[-2:]
        x = x.flatten(2).transpose(1, 2)  # (2B, 32, h, w) -> (2B, hw, 32)
        for layer in self.decoder:
            x = layer(x, tokens)
        first, second = split_dates(x.transpose(1, 2).unflatten(2, grid))
        difference = (first - second).abs()
        full = before.shape[-2], before.shape[-1]
        return self.head(resize(difference, full)), []

    def tokenize(self, x: Tensor) -> Tensor:
        """Pool maps (2B, C, h, w) into tokens (2B, 4, C), one for each spatial attention."""
        weights = self.attend(x).flatten(2).softmax(-1)  # (2B, 4, hw)
        return weights @ x.flatten(2).transpose(1, 2).to(weights.dtype)

    def relate(self, tokens: Tensor) -> Tensor:
        """Let the tokens of both dates (2B, 4, C) see one another."""
        pair = torch.cat(split_dates(tokens), dim=1) + self.places  # (B, 8, C)
        pair = self.encoder(pair, pair)
        return torch.cat((pair[:, :TOKENS], pair[:, TOKENS:]))
