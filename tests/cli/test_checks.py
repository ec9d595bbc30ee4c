"""What is certainly wrong is said before torch or GDAL is loaded."""

from __future__ import annotations

import subprocess
import sys

import pytest

from adadino.cli.checks import check_images
from adadino.errors import InputError

WRONG = [
    "predict no.tif no2.tif -o c.tif",
    "predict a.tif a.tif -o there.tif",
    "predict a.tif b.tif -o c.tif --report there.tif",
    "predict a.tif b.tif -o c.tif --model nothing",
    "demo --pair no.tif no2.tif",
    "demo --model nothing",
    "evaluate nothing --data .",
    "evaluate tiny --data nowhere",
    "export nothing -o m.onnx",
    "export tiny -o m.xyz",
    "export tiny -o there.onnx",
    "train --config no.yaml",
    "train --preset tiny --data nowhere",
    "benchmark --preset nothing",
    "benchmark --k 99",
    "info nothing",
    "prepare folder nowhere dest",
    "pretrain --images nowhere -o out",
    "predict-area --pairs no.csv -o out --workers 0",
]
CODE = """
import json, sys
from adadino.cli.app import main
for line in json.loads(sys.argv[1]):
    sys.argv = ["adadino", *line.split()]
    try:
        main()
        code = 0
    except SystemExit as end:
        code = end.code
    loaded = [name for name in ("torch", "rasterio", "pytorch_lightning") if name in sys.modules]
    print(f"{line}: {code} {' '.join(loaded)}".rstrip())
"""


def test_no_verb_loads_torch_to_say_what_is_missing(tmp_path):
    import json

    for name in ("a.tif", "b.tif", "there.tif", "there.onnx"):
        (tmp_path / name).touch()
    done = subprocess.run(
        [sys.executable, "-c", CODE, json.dumps(WRONG)],
        cwd=tmp_path, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.stdout.splitlines() == [f"{line}: 1" for line in WRONG], done.stderr
    assert len(done.stderr.splitlines()) == len(WRONG)  # one sentence each


@pytest.mark.parametrize(
    "name",
    ["https://example.org/a.tif", "/vsicurl/https://x/a.tif", 'NETCDF:"a.nc":red', "s3://b/a.tif"],
)
def test_what_gdal_finds_itself_is_left_to_it(name):
    check_images(name)


def test_a_name_that_is_too_long_is_only_a_name():
    with pytest.raises(InputError, match="there is no file"):
        check_images("x" * 5000)
