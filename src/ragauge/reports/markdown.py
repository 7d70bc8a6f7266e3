"""Pieces of a page of Markdown: texts that stay texts, tables, and what is folded away."""

from __future__ import annotations

import html
import re
from collections.abc import Collection, Sequence

from ragauge.reports.tables import one_line

ACTING = re.compile(r"<(?!\s|=\s|\d+(?:\.\d+)?(?:\s|$))")
"""A bracket that may open a tag or a link; before a blank or a number it cannot."""


def safe(text: str) -> str:
    r"""A text as text: no line breaks, no control characters, nothing that Markdown or HTML would act on.

    >>> print(safe("p < 0.001 for <b>, *a* & b|c"))
    p < 0.001 for &lt;b>, \*a\* &amp; b\|c
    """
    plain = ACTING.sub("&lt;", one_line(text).replace("&", "&amp;"))
    return re.sub(r"([\\`*\[\]|#!$~])", r"\\\1", plain)


def grid(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    numbers: bool = True,
    strong: Collection[tuple[int, int]] = (),
) -> list[str]:
    """A table, line by line; all columns but the first and `store` are numbers, unless they are not.

    `strong` are the places, row and column, of what is in bold.
    """

    def line(cells: Sequence[str], row: int) -> str:
        texts = [safe(cell) for cell in cells]
        marked = [f"**{text}**" if text and (row, i) in strong else text for i, text in enumerate(texts)]
        return "| " + " | ".join(marked) + " |"

    rule = "|---|" + "".join("---:|" if numbers and title != "store" else "---|" for title in header[1:])
    return [line(header, -1), rule, *(line(cells, i) for i, cells in enumerate(rows))]


def folded(title: str, lines: Sequence[str]) -> list[str]:
    """Lines that are opened by a click on their title; the blank ones around them let tables be tables."""
    return [f"<details><summary>{html.escape(one_line(title))}</summary>", "", *lines, "", "</details>"]
