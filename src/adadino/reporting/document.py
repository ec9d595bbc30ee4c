"""A document that people mail: headings, texts, facts, tables, notes and pictures, as HTML or PDF.

- The HTML is one file: pictures are inside it, and it loads nothing and runs nothing.
- Every text is escaped, because names of files and coordinate systems come from strangers.
- It has no date in it: the same content gives the same bytes.

`write_document` takes sections of blocks; a block is a `Text`, `Facts`, `Table`, `Notes` or
`Pictures`. A new kind of block is a class here and one branch in each of the two writers.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from adadino.errors import WriteError
from adadino.files import write_atomic

if TYPE_CHECKING:
    from fpdf import FPDF

SUFFIXES = (".html", ".pdf")


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str


@dataclass(frozen=True)
class Facts:
    """Names and their values, a line each."""

    values: Mapping[str, object]


@dataclass(frozen=True)
class Table:
    """A table; the first column is left-aligned, the others are right-aligned."""

    header: Sequence[str]
    rows: Sequence[Sequence[object]]


@dataclass(frozen=True)
class Notes:
    """Things the reader must not overlook, in a box."""

    lines: Sequence[str]


@dataclass(frozen=True)
class Pictures:
    """Pictures (H, W, 3) in rows of `columns`, each above its caption."""

    items: Sequence[tuple[NDArray[np.uint8], str]]
    columns: int = 1


Block = Text | Facts | Table | Notes | Pictures


@dataclass(frozen=True)
class Section:
    """A heading and what stands below it."""

    title: str
    blocks: Sequence[Block]


def write_document(path: Path | str, title: str, sections: Sequence[Section]) -> None:
    """Write a document, whole or not at all.

    Args:
        path: The file: .html or .pdf.
        title: What stands on top.
        sections: What follows, in this order.

    Raises:
        WriteError: The suffix is another one, or the file cannot be written.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise WriteError(f"cannot write {path}; end its name in {' or '.join(SUFFIXES)}.")
    made = as_html(title, sections).encode() if suffix == ".html" else as_pdf(title, sections)
    write_atomic(path, made)


STYLE = """
body { font: 15px/1.5 system-ui, "Segoe UI", Roboto, sans-serif; color: #20242a;
  max-width: 60rem; margin: 2rem auto; padding: 0 1rem; background: #fff; }
h1 { font-size: 1.7rem; margin: 0 0 .5rem; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; border-bottom: 1px solid #d6d9de; }
table { border-collapse: collapse; margin: .5rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .8rem .2rem 0; text-align: right; vertical-align: top; }
th { font-weight: 600; border-bottom: 1px solid #d6d9de; }
th:first-child, td:first-child, .facts td { text-align: left; }
.facts td:first-child { color: #5c636d; white-space: nowrap; }
td { overflow-wrap: anywhere; }
.notes { border-left: 4px solid #c77700; background: #fff7e8; padding: .5rem 1rem; }
.notes p { margin: .25rem 0; }
.pictures { display: grid; gap: 1rem; margin: .75rem 0; }
figure { margin: 0; break-inside: avoid; }
figure img { width: 100%; display: block; border: 1px solid #d6d9de; }
figcaption { font-size: .85rem; color: #5c636d; overflow-wrap: anywhere; }
@media print { body { margin: 0; max-width: none; } }
"""


def as_html(title: str, sections: Sequence[Section]) -> str:
    """The document as one page without scripts."""
    body = "".join(
        f"<section><h2>{escape(section.title)}</h2>{''.join(map(_html, section.blocks))}</section>"
        for section in sections
    )
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>"
        f"<body><h1>{escape(title)}</h1>{body}</body></html>\n"
    )


def _html(block: Block) -> str:
    match block:
        case Text(text):
            return f"<p>{escape(text)}</p>"
        case Facts(values):
            return f'<table class="facts">{_html_rows(values.items(), "td")}</table>'
        case Table(header, rows):
            return f"<table>{_html_rows([header], 'th')}{_html_rows(rows, 'td')}</table>"
        case Notes(lines):
            return f'<div class="notes">{"".join(f"<p>{escape(one)}</p>" for one in lines)}</div>'
        case Pictures(items, columns):
            figures = "".join(_html_figure(picture, caption) for picture, caption in items)
            grid = f"grid-template-columns: repeat({columns}, minmax(0, 1fr))"
            return f'<div class="pictures" style="{grid}">{figures}</div>'


def _html_rows(rows: object, cell: str) -> str:
    return "".join(
        "<tr>" + "".join(f"<{cell}>{escape(str(one))}</{cell}>" for one in row) + "</tr>"
        for row in rows  # type: ignore[attr-defined]
    )


def _html_figure(picture: NDArray[np.uint8], caption: str) -> str:
    code = base64.b64encode(encoded(picture)).decode()
    alt = escape(caption, quote=True)
    image = f'<img src="data:image/jpeg;base64,{code}" alt="{alt}">'
    return f"<figure>{image}<figcaption>{escape(caption)}</figcaption></figure>"


def encoded(picture: NDArray[np.uint8]) -> bytes:
    """A picture as JPEG: a photograph as PNG is five times as large."""
    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, "JPEG", quality=90, subsampling=0)
    return buffer.getvalue()


MARGIN, LINE, GAP = 15.0, 5.0, 4.0
"""Millimetres of a page's margins, of a line of text, and between pictures."""


def as_pdf(title: str, sections: Sequence[Section]) -> bytes:
    """The document as A4 pages."""
    from fpdf import FPDF

    pdf = FPDF(format="A4")
    pdf.set_creation_date(datetime(2000, 1, 1, tzinfo=UTC))
    pdf.set_title(title)
    pdf.set_margin(MARGIN)
    pdf.set_auto_page_break(True, MARGIN)
    _set_font(pdf)
    pdf.set_draw_color(214, 217, 222)
    pdf.add_page()
    _line(pdf, title, size=17)
    for section in sections:
        if pdf.will_page_break(25):  # a heading alone at the end of a page
            pdf.add_page()
        pdf.ln(GAP)
        _line(pdf, section.title, size=12.5)
        pdf.line(MARGIN, pdf.get_y(), pdf.w - MARGIN, pdf.get_y())
        pdf.ln(1.5)
        for block in section.blocks:
            _pdf(pdf, block)
    return bytes(pdf.output())


def _pdf(pdf: FPDF, block: Block) -> None:
    match block:
        case Text(text):
            _line(pdf, text)
        case Facts(values):
            _pdf_table(pdf, list(values.items()), [1, 3], "LEFT")
        case Table(header, rows):
            _pdf_table(pdf, [header, *rows], None, ["LEFT", *["RIGHT"] * (len(header) - 1)])
        case Notes(lines):
            pdf.set_fill_color(255, 247, 232)
            for one in lines:
                _line(pdf, one, fill=True)
        case Pictures(items, columns):
            for start in range(0, len(items), columns):
                _pdf_pictures(pdf, items[start : start + columns], columns)


def _pdf_table(
    pdf: FPDF, rows: Sequence[Sequence[object]], widths: list[int] | None, align: str | list[str]
) -> None:
    from fpdf.enums import TableBordersLayout

    with pdf.table(
        col_widths=widths,
        text_align=align,
        first_row_as_headings=False,
        borders_layout=TableBordersLayout.HORIZONTAL_LINES,
        line_height=LINE,
    ) as table:
        for row in rows:
            table.row([_printable(pdf, str(one)) for one in row])


def _pdf_pictures(pdf: FPDF, items: Sequence[tuple[NDArray[np.uint8], str]], columns: int) -> None:
    """One row of pictures, on one page."""
    width = (pdf.epw - GAP * (columns - 1)) / columns
    heights = [width * picture.shape[0] / picture.shape[1] for picture, _ in items]
    room = pdf.eph - 3 * LINE
    shrink = min(1.0, room / max(heights))  # a tall scene fits the page
    if pdf.will_page_break(shrink * max(heights) + 3 * LINE):
        pdf.add_page()
    top = pdf.get_y() + 1
    ends = []
    for index, ((picture, caption), height) in enumerate(zip(items, heights, strict=True)):
        left = MARGIN + index * (width + GAP)
        size = {"w": shrink * width, "h": shrink * height}
        pdf.image(io.BytesIO(encoded(picture)), x=left, y=top, **size)
        pdf.set_xy(left, top + shrink * height + 0.5)
        pdf.set_font_size(8)
        pdf.multi_cell(width, 3.6, _printable(pdf, caption), align="L")
        pdf.set_font_size(9.5)
        ends.append(pdf.get_y())
    pdf.set_xy(MARGIN, max(ends) + 1.5)


def _line(pdf: FPDF, text: str, *, size: float = 9.5, fill: bool = False) -> None:
    pdf.set_font_size(size)
    text = _printable(pdf, text)
    pdf.multi_cell(0, LINE * size / 9.5, text, align="L", fill=fill, new_x="LMARGIN", new_y="NEXT")
    pdf.set_font_size(9.5)


def _set_font(pdf: FPDF) -> None:
    """DejaVu, which knows most alphabets, where matplotlib brings it; else Helvetica."""
    try:
        import matplotlib
    except ImportError:
        pdf.set_font("Helvetica", size=9.5)
        return
    pdf.add_font("DejaVu", fname=Path(matplotlib.get_data_path()) / "fonts/ttf/DejaVuSans.ttf")
    pdf.set_font("DejaVu", size=9.5)


def _printable(pdf: FPDF, text: str) -> str:
    r"""A text in characters that the font has; others as `\u4e2d`."""
    if not pdf.is_ttf_font:
        return text.encode("latin-1", "backslashreplace").decode("latin-1")
    glyphs = pdf.current_font.cmap  # type: ignore[union-attr]
    return "".join(c if ord(c) in glyphs else ascii(c)[1:-1] for c in text)
