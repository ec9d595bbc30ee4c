"""A server whose adaptations take seconds."""

from __future__ import annotations

import os
import re
import subprocess
import sys

from tests.web.conftest import Running

SERVE = """
import sys
from pathlib import Path
from adadino.training.adapt.options import AdaptOptions
from adadino.web.server import serve
from adadino.web.settings import Settings, choose_models

jobs, model, tokens, options = sys.argv[1:]
serve(Settings(
    jobs=Path(jobs), models=choose_models([f"base={model}"]), port=0, device="cpu",
    tokens=tuple(filter(None, tokens.split(","))), demo=not tokens,
    adapt=AdaptOptions(**eval(options)),
), lambda line: print(line, flush=True))
"""
"""`adadino serve` with fewer updates, which people cannot choose."""
FAST = {"steps": 2, "folds": 2, "replay": 1, "views": 4, "every": 1}


def serving(model, jobs, *, tokens="", **options):
    """Start a server; the options are those of an adaptation."""
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE, str(jobs), str(model), tokens, repr(FAST | options)],
        stdout=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    found = re.search(r"http://\S+:\d+", process.stdout.readline())
    assert found, f"serve ended with {process.wait()}"
    return Running(process, found.group(), jobs)
