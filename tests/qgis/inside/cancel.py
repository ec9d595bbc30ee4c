"""Cancel a run that would never end: `cancel.py command before after out`."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from start import Feedback, say, start

command, before, after, out = sys.argv[1:]
app, plugin = start(command)

import processing  # noqa: E402

feedback = Feedback(cancel=True)
started = time.monotonic()
try:
    processing.run(
        "adadino:detectchange",
        {"BEFORE": before, "AFTER": after, "MASK": str(Path(out, "mask.tif"))},
        feedback=feedback,
    )
    message = ""
except Exception as error:
    message = str(error)
say(message=message, seconds=time.monotonic() - started, percents=feedback.percents)
