"""How well the texts of a page stand out from what is behind them."""

from __future__ import annotations

import re


def contrasts(page):
    """The ratio, text and colours of every text that is seen, but for those over the map."""
    found = []
    for text, ink, paper in page.evaluate(_TEXTS):
        if "rgba" not in paper and "color(" not in paper:
            one, two = sorted((luminance(ink), luminance(paper)))
            found.append(((two + 0.05) / (one + 0.05), text, ink, paper))
    return found


def luminance(colour):
    parts = [int(v) / 255 for v in re.findall(r"\d+", colour)[:3]]
    red, green, blue = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in parts]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


_TEXTS = """() => [...document.querySelectorAll('body *')]
  .filter(e => e.checkVisibility())
  .filter(e => [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()))
  .map(e => { let b = e; const solid = c => !/, 0\\)$|transparent/.test(c);
    while (b && !solid(getComputedStyle(b).backgroundColor)) b = b.parentElement;
    return [e.textContent.trim().slice(0, 30), getComputedStyle(e).color,
            getComputedStyle(b ?? document.body).backgroundColor]; })"""
