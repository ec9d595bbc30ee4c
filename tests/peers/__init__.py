import pytest

from adadino.peers import PEERS

NAMES = [
    pytest.param(name, marks=[pytest.mark.slow] if name == "rs-mamba" else []) for name in PEERS
]
"""Every peer; the largest one is left to the slow tests, where ChangeMamba shares its blocks."""
