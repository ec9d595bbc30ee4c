"""What the plugin does without QGIS: find the command, ask it, build its words, run and end it."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.qgis.conftest import PLUGIN, ends, script  # isort: skip  (puts the plugin on the path)
from adadino_change.command import run
from adadino_change.command.abilities import check_able, options_of, version_of
from adadino_change.command.arguments import Call
from adadino_change.command.errors import CancelledError, CommandError
from adadino_change.command.find import find_command
from adadino_change.command.progress import Line, read_line, why_failed
from adadino_change.command.run import clean_environment, run_command
from adadino_change.command.sources import check_model, raster_source

OLDER = """
import sys
words = sys.argv[1:]
if words == ["--version"]:
    print("0.1.0")
elif words == ["predict", "--help"]:
    print("| --output -o <path> |\\n| --vector <path> |\\n| --json |")
else:
    sys.exit(2)
"""
ENDLESS = """
import pathlib, signal, subprocess, sys, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c",
    "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(600)"])
pathlib.Path(sys.argv[1]).write_text(str(child.pid))
print("predicting: 1/100", file=sys.stderr, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("path", sorted(PLUGIN.rglob("*.py")), ids=lambda path: path.name)
def test_the_plugin_is_written_in_the_python_of_the_oldest_qgis(path):
    text = path.read_text(encoding="utf-8")
    ast.parse(text, feature_version=(3, 9))
    # `X | None` and `list[str]` are for the reader; Python 3.9 must not evaluate them.
    assert "from __future__ import annotations" in text or ": " not in text.split('"""')[2]


def program(path: Path) -> Path:
    return script(path, "")


@pytest.mark.parametrize(
    "place",
    [
        ".local/bin/adadino",
        ".local/share/pipx/venvs/adadino/bin/adadino",
        "Library/Python/3.11/bin/adadino",
        "miniforge3/envs/change/bin/adadino",
        ".virtualenvs/gis/bin/adadino",
    ],
)
def test_the_command_is_found_where_installers_put_it(place, tmp_path):
    there = program(tmp_path / place)
    assert find_command(system="Darwin", environ={"PATH": ""}, home=tmp_path) == there


@pytest.mark.parametrize(
    ("variable", "place"),
    [
        ("USERPROFILE", "pipx/venvs/adadino/Scripts/adadino.exe"),
        ("LOCALAPPDATA", "Programs/Python/Python312/Scripts/adadino.exe"),
        ("APPDATA", "Python/Python311/Scripts/adadino.exe"),
        ("USERPROFILE", "miniconda3/envs/gis/Scripts/adadino.exe"),
        ("PROGRAMDATA", "miniforge3/Scripts/adadino.exe"),
    ],
)
def test_the_command_is_found_on_windows(variable, place, tmp_path):
    there = program(tmp_path / place)
    environ = {"PATH": "", variable: str(tmp_path)}
    assert find_command(system="Windows", environ=environ, home=tmp_path / "no") == there


def test_the_setting_comes_before_path_and_may_name_an_environment(tmp_path):
    on_path = program(tmp_path / "path" / "adadino")
    mine = program(tmp_path / "venv" / "bin" / "adadino")
    environ = {"PATH": str(on_path.parent)}
    assert find_command(environ=environ, home=tmp_path, system="Linux") == on_path
    for setting in (mine, mine.parent, mine.parent.parent):
        assert find_command(str(setting), environ=environ, system="Linux") == mine


def test_what_is_no_command_is_refused_with_a_way_out(tmp_path):
    batch = program(tmp_path / "adadino.bat")
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").write_text("no program")
    for setting, message in (
        (batch, "through a shell"),
        (tmp_path / "gone", "does not exist"),
        (tmp_path / "empty", "holds none"),
        (tmp_path / "text", "is no program"),
    ):
        with pytest.raises(CommandError, match=message):
            find_command(str(setting), system="Linux")
    with pytest.raises(CommandError, match="pipx install") as missing:
        find_command(system="Windows", environ={"PATH": ""}, home=tmp_path)
    assert "Settings > Options > Processing" in str(missing.value)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("predicting: 3/12 10 s left\n", Line("progress", "predicting: 3/12 10 s left", 25.0)),
        ("fold 2 of 4: 5/10", Line("progress", "fold 2 of 4: 5/10", 50.0)),
        ("adadino: warning: the grids differ.", Line("warning", "the grids differ.")),
        ("adadino: there is no file x.tif.", Line("error", "there is no file x.tif.")),
        ("\x1b[31mread: 1/4\x1b[0m", Line("progress", "read: 1/4", 25.0)),
        ("see docs: 2019/12 is a month", Line("text", "see docs: 2019/12 is a month")),
        ("empty: 0/0", Line("text", "empty: 0/0")),
    ],
)
def test_lines_of_standard_error_are_understood(text, line):
    assert read_line(text) == line


def test_a_failure_is_the_commands_own_sentence():
    lines = ["adadino: warning: w", "adadino: there is no file x.tif.", "predicting: 1/2"]
    assert why_failed(lines, 1) == "there is no file x.tif."
    usage = ["Usage: adadino predict", "╭─ Error ─╮", "│ No such option: --aoi │", "╰───╯"]
    assert "No such option: --aoi" in why_failed(usage, 2)
    assert "out of memory" in why_failed([], -9)
    assert "ValueError: seven" in why_failed(["Traceback ...", "ValueError: seven"], 1)


def test_values_stay_one_word_and_are_never_options():
    call = Call(("predict",), positional=["-rf.tif", "a b; $(x).tif"])
    call.add("--min-area", 100.0)
    call.add("--threshold", 0.25)
    call.add("--model", "")
    call.add("--dates", None)
    call.add("--register", False)
    call.add("--overwrite", True)
    call.add("--output", "--evil")
    words = call.words(Path("/bin/adadino"))
    assert words[1:5] == ["predict", "--min-area=100", "--threshold=0.25", "--overwrite"]
    assert words[5:] == ["--output=--evil", "--", "-rf.tif", "a b; $(x).tif"]


def test_zero_is_a_value():
    call = Call(("predict",))
    call.add("--min-area", 0.0)
    assert call.options == [("--min-area", "0")]


def test_an_older_command_is_named_with_its_version(tmp_path):
    older = script(tmp_path / "adadino", OLDER)
    assert version_of(older) == "0.1.0"
    assert options_of(older, "predict") == {"--output", "--vector", "--json"}
    check_able(older, ("predict",), ["--output", "--json"])
    with pytest.raises(CommandError, match=r"adadino 0\.1\.0.*does not know --aoi.*Update it"):
        check_able(older, ("predict",), ["--aoi", "--output"])
    with pytest.raises(CommandError, match="has no `judge export`"):
        check_able(older, ("judge", "export"), [])


def test_an_updated_command_is_asked_again(tmp_path):
    path = script(tmp_path / "adadino", OLDER)
    assert version_of(path) == "0.1.0"
    script(path, OLDER.replace("0.1.0", "0.3.0"))
    os.utime(path, ns=(1, 1))
    assert version_of(path) == "0.3.0"


def test_another_program_is_not_taken_for_the_command(tmp_path):
    other = script(tmp_path / "adadino", "print('hello')")
    with pytest.raises(CommandError, match="not adadino's answer"):
        version_of(other)


def test_the_command_does_not_see_qgis_own_python_and_gdal():
    environ = {"PYTHONHOME": "/qgis", "PROJ_LIB": "/qgis/proj", "GDAL_DATA": "/x", "HOME": "/h"}
    kept = clean_environment(environ)
    assert not {"PYTHONHOME", "PROJ_LIB", "GDAL_DATA"} & set(kept)
    assert kept["HOME"] == "/h"


def test_a_run_hands_on_its_lines_and_its_facts(tmp_path):
    text = "import sys; print('go: 1/2', file=sys.stderr); print('{\"polygons\": 3}')"
    lines = []
    words = [str(script(tmp_path / "adadino", text))]
    finished = run_command(words, on_line=lines.append, is_cancelled=lambda: False)
    assert finished.facts == {"polygons": 3}
    assert lines == [Line("progress", "go: 1/2", 50.0)]


def test_a_command_that_cannot_start_is_a_sentence(tmp_path):
    broken = tmp_path / "adadino"
    broken.write_text("#!/no/such/python\n")
    broken.chmod(0o755)
    with pytest.raises(CommandError, match="could not be started"):
        run_command([str(broken)], on_line=lambda line: None, is_cancelled=lambda: False)


def test_cancel_ends_the_command_and_what_it_started(tmp_path):
    words = [str(script(tmp_path / "adadino", ENDLESS)), str(tmp_path / "child")]
    lines = []
    with pytest.raises(CancelledError):
        run_command(words, on_line=lines.append, is_cancelled=lambda: bool(lines))
    child = int((tmp_path / "child").read_text())
    assert ends(child)


def test_layers_that_are_no_files_are_refused_or_passed_knowingly(tmp_path):
    image = tmp_path / "a.tif"
    image.touch()
    assert raster_source(str(image), "gdal", "a") == (str(image), "")
    for source in ("/vsizip/a.zip/a.tif", "/vsicurl/https://h/a.tif", "NETCDF:f.nc:red"):
        opened, remark = raster_source(source, "gdal", "a")
        assert opened == source
        assert "GDAL opens it" in remark
    for source, provider, message in (
        ("url=https://tiles", "wms", "provider 'wms'"),
        ("PG:dbname=x password=secret", "gdal", "database"),
        ("/vsimem/a.tif", "gdal", "memory"),
        (f"{tmp_path}/gone.tif", "gdal", "does not exist"),
        ("C:/images/gone.tif", "gdal", "does not exist"),
    ):
        with pytest.raises(CommandError, match=message) as refused:
            raster_source(source, provider, "a")
        assert "secret" not in str(refused.value)


def test_a_model_that_is_gone_is_said(tmp_path):
    check_model("tiny")
    check_model(str(tmp_path))
    for gone in (str(tmp_path / "gone"), "model.onnx", "./mine"):
        with pytest.raises(CommandError, match="There is no model at"):
            check_model(gone)


def test_on_windows_the_whole_tree_is_ended_without_what_only_posix_has(tmp_path, monkeypatch):
    words = [str(script(tmp_path / "adadino", ENDLESS)), str(tmp_path / "child")]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, start_new_session=True)
    process.stderr.readline()
    asked = []
    monkeypatch.setattr(run.sys, "platform", "win32")
    monkeypatch.delattr(run.os, "killpg")
    monkeypatch.setattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 512, raising=False)
    monkeypatch.setattr(subprocess, "CREATE_NO_WINDOW", 134217728, raising=False)
    monkeypatch.setattr(subprocess, "run", lambda words, **options: asked.append((words, options)))
    run.end_tree(process)
    [(words, options)] = asked
    assert Path(words[0].replace("\\", "/")).name == "taskkill.exe"
    assert words[1:] == ["/F", "/T", "/PID", str(process.pid)]
    assert options["creationflags"] == 512 | 134217728
    assert process.returncode is not None  # ended even where taskkill does nothing
    process.stderr.close()
    monkeypatch.undo()
    os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)
