"""Documents: one file, nothing in it that runs, whatever names the inputs have."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import numpy as np
import pytest

from adadino.errors import WriteError
from adadino.reporting.document import (
    Facts,
    Notes,
    Pictures,
    Section,
    Table,
    Text,
    as_html,
    as_pdf,
    write_document,
)

HOSTILE = "<script>alert(1)</script>\"' onerror=x <img src=http://evil/>&amp;中.tif"
PICTURE = np.full((20, 30, 3), 90, np.uint8)
SECTIONS = [
    Section(
        HOSTILE,
        [
            Text(HOSTILE),
            Facts({HOSTILE: HOSTILE}),
            Table([HOSTILE, "n"], [[HOSTILE, 1]]),
            Notes([HOSTILE]),
            Pictures([(PICTURE, HOSTILE)] * 3, columns=2),
        ],
    )
]


class Read(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.texts.append(data)


def test_a_hostile_name_is_text_wherever_it_stands():
    page = Read()
    page.feed(as_html(HOSTILE, SECTIONS))
    allowed = {"html", "head", "meta", "title", "style", "body", "h1", "h2", "section", "p", "div"}
    allowed |= {"table", "tr", "td", "th", "figure", "img", "figcaption"}
    assert {tag for tag, _ in page.tags} <= allowed
    assert {name for _, attributes in page.tags for name in attributes} <= {
        *("lang", "charset", "http-equiv", "content", "name", "class", "style", "src", "alt")
    }
    assert page.texts.count(HOSTILE) == 12  # each place that shows it
    assert [a["alt"] for tag, a in page.tags if tag == "img"] == [HOSTILE] * 3


def test_the_page_is_one_file():
    html = as_html("t", SECTIONS)
    sources = re.findall(r'(?:src|href)="([^"]*)"', html)
    assert len(sources) == 3
    assert all(source.startswith("data:image/jpeg;base64,") for source in sources)
    assert "default-src 'none'" in html


def test_a_pdf_takes_what_a_page_takes():
    pytest.importorskip("fpdf", reason="PDF is written with fpdf2")
    made = as_pdf(HOSTILE, SECTIONS)
    assert made.startswith(b"%PDF-")
    assert made == as_pdf(HOSTILE, SECTIONS)  # no date, no random name


def test_pictures_taller_than_a_page_stay_on_one():
    pytest.importorskip("fpdf", reason="PDF is written with fpdf2")
    tall = [Section("tall", [Pictures([(np.zeros((900, 30, 3), np.uint8), "tall")])])]
    assert as_pdf("t", tall).count(b"/Type /Page\n") == 2  # the title's, and the picture's


def test_another_suffix_is_refused(tmp_path):
    with pytest.raises(WriteError, match=r"end its name in \.html or \.pdf"):
        write_document(tmp_path / "report.docx", "t", SECTIONS)
    assert not list(tmp_path.iterdir())


def test_the_file_appears_whole(tmp_path):
    write_document(tmp_path / "report.html", "t", SECTIONS)
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
