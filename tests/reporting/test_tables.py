"""Tables as text."""

from __future__ import annotations

import csv
import io

from adadino.reporting.tables import csv_text, markdown_table, name_cell


def test_markdown_has_a_line_under_its_header():
    assert markdown_table(["a", "b"], [["1", "2"]]) == ["| a | b |", "| --- | --- |", "| 1 | 2 |"]


def test_csv_takes_rows_in_order_or_by_name():
    text = csv_text(["name", "f1"], [["x, y", 0.1], {"f1": 0.25, "name": "z"}, {"name": "w"}])
    assert list(csv.reader(io.StringIO(text))) == [
        ["name", "f1"],
        ["x, y", "0.1"],
        ["z", "0.25"],
        ["w", ""],
    ]


def test_a_spreadsheet_computes_no_name():
    assert name_cell("=HYPERLINK(1)") == "'=HYPERLINK(1)"
    assert [name_cell(f"{sign}1|x") for sign in "+-@"] == ["'+1|x", "'-1|x", "'@1|x"]
    assert name_cell("test_25=") == "test_25="
