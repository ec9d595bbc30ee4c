from __future__ import annotations

from pathlib import Path

import pytest

from adadino.training.run import RunResult
from tests.training.runs import dataset, run


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nine training pairs and five for validation; no test split at all."""
    return dataset(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="session")
def trained(data: Path, tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    """An uninterrupted run of four epochs; read it, do not change it."""
    with pytest.warns(match="frozen backbone is random"):
        return run(data, tmp_path_factory.mktemp("trained"))
