"""The paper's published figures, quoted. Ours have columns of their own."""

from __future__ import annotations

PARAMETERS: dict[str, float] = {"cgla": 35.88e6, "bscs": 25.27e6, "cpgr": 9.41e6}
"""Trainable parameters for ViT-L/16, App. A."""

GFLOPS: dict[int, float] = {16: 1360.83, 10: 1050.15, 8: 946.57, 6: 842.99, 4: 739.41}
"""GFLOPs of one 256 x 256 pair by executed chunks k, Table 3."""

GFLOPS_BASELINE = 1278.66
"""GFLOPs of the frozen baseline, without CGLA and prior, Table 3."""

FFN_MS: dict[int, float] = {16: 45.17, 10: 29.15, 8: 23.48, 6: 17.84, 4: 12.31}
"""Feed-forward time of all blocks in ms per pair by k, Table 3 (A800, fp32, batch 16)."""

PAIRS_PER_S: dict[int, float] = {16: 11.00, 10: 13.20, 8: 14.23, 6: 15.48, 4: 16.90}
"""Throughput by k, Table 3 (A800, fp32, batch 16)."""

SPEEDUP: dict[int, float] = {16: 1.00, 10: 1.20, 8: 1.29, 6: 1.41, 4: 1.54}
"""Throughput over that of k = 16, Table 3."""
