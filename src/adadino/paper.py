"""The paper's published figures, quoted. Ours never stand in the same column."""

from __future__ import annotations

PARAMETERS: dict[str, float] = {"cgla": 35.88e6, "bscs": 25.27e6, "cpgr": 9.41e6}
"""Trainable parameters for ViT-L/16, App. A."""

GFLOPS: dict[int, float] = {16: 1360.83, 10: 1050.15, 8: 946.57, 6: 842.99, 4: 739.41}
"""GFLOPs of one 256 x 256 pair by executed chunks k, Table 3."""

GFLOPS_BASELINE = 1278.66
"""GFLOPs of the frozen baseline, without CGLA and prior, Table 3."""
