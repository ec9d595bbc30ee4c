"""What skipping FFN chunks saves on the CPU, beside transformers' encoder on the same images.

    python benchmarks/encoder_cpu.py
    python benchmarks/encoder_cpu.py --preset vitb16 --size 128 --repeats 5

Three forward passes over one pair, float32, random weights: the whole model with every chunk, the
whole model at the preset's budget, and transformers' DINOv3 encoder alone on the two enlarged
images. They take turns (ABCABC), so a busy or throttled machine slows all three; each figure is the
median of its turns, and the ratios are what to read.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import nn

from adadino.config import PRESETS, BackboneConfig
from adadino.model.adadino import AdaDINO


def main() -> None:
    parser = argparse.ArgumentParser(description="Forward passes on the CPU, as ratios.")
    parser.add_argument("--preset", choices=sorted(PRESETS), default="vitl16")
    parser.add_argument("--size", type=int, default=256, help="side of the pair in pixels")
    parser.add_argument("--repeats", type=int, default=3, help="turns of each; the median counts")
    options = parser.parse_args()

    config = PRESETS[options.preset]
    torch.manual_seed(0)
    model = AdaDINO(config).eval()
    encoder = transformers_encoder(config.backbone)
    pair = torch.rand(2, 3, options.size, options.size)
    before, after = pair.split(1)
    inside = model.prepare(torch.cat((before, after)))
    dense, sparse = config.bscs.chunks, config.bscs.k

    passes: dict[str, Callable[[], object]] = {
        f"adadino, k={dense}": lambda: model(before, after, k=dense),
        f"adadino, k={sparse}": lambda: model(before, after, k=sparse),
        "transformers encoder": lambda: encoder(inside),
    }
    seconds = take_turns(passes, options.repeats)

    height, width = inside.shape[-2:]
    print(f"{options.preset}, one {options.size} x {options.size} pair ({height} x {width} inside)")
    print(f"torch {torch.__version__}, float32, {torch.get_num_threads()} threads")
    print(f"{'forward pass':<24}{'seconds':>9}{f'/ k={dense}':>9}{'/ transformers':>16}")
    first, *_, last = seconds.values()
    for name, value in seconds.items():
        print(f"{name:<24}{value:>9.2f}{value / first:>9.2f}{value / last:>16.2f}")


def transformers_encoder(backbone: BackboneConfig) -> nn.Module:
    """Make transformers' DINOv3 of the same shape, with its own random weights."""
    from transformers import DINOv3ViTConfig, DINOv3ViTModel

    config = DINOv3ViTConfig(
        hidden_size=backbone.dim,
        intermediate_size=backbone.ffn,
        num_hidden_layers=backbone.depth,
        num_attention_heads=backbone.heads,
        num_register_tokens=backbone.registers,
        use_gated_mlp=backbone.gated,
    )
    model: nn.Module = DINOv3ViTModel(config)
    return model.eval()


@torch.inference_mode()
def take_turns(passes: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Run every pass once off the clock, then in turns; the median seconds of each."""
    times: dict[str, list[float]] = {name: [] for name in passes}
    for turn in range(repeats + 1):
        for name, run in passes.items():
            start = time.perf_counter()
            run()
            if turn:
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


if __name__ == "__main__":
    main()
