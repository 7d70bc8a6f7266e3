"""Markdown elements: escaped texts, tables, and collapsible blocks."""

from __future__ import annotations

import html
import re
from collections.abc import Collection, Sequence

from ragauge.core.text import one_line

TAG_START = re.compile(r"<(?!\s|=\s|\d+(?:\.\d+)?(?:\s|$))")
"""A bracket that may open a tag or a link; before a blank or a number it cannot."""


def escape_markdown(text: str) -> str:
    r"""Escape a text for Markdown and HTML.

    Line breaks and control characters are removed.

    >>> print(escape_markdown("p < 0.001 for <b>, *a* & b|c"))
    p < 0.001 for &lt;b>, \*a\* &amp; b\|c
    """
    plain = TAG_START.sub("&lt;", one_line(text).replace("&", "&amp;"))
    return re.sub(r"([\\`*\[\]|#!$~])", r"\\\1", plain)


def render_markdown_table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    numbers: bool = True,
    strong: Collection[tuple[int, int]] = (),
) -> list[str]:
    """Render a table as lines of Markdown.

    With `numbers`, all columns but the first and `store` are right-aligned. `strong` has the row and column indices
    of cells in bold.
    """

    def line(cells: Sequence[str], row: int) -> str:
        texts = [escape_markdown(cell) for cell in cells]
        marked = [f"**{text}**" if text and (row, i) in strong else text for i, text in enumerate(texts)]
        return "| " + " | ".join(marked) + " |"

    rule = "|---|" + "".join("---:|" if numbers and title != "store" else "---|" for title in header[1:])
    return [line(header, -1), rule, *(line(cells, i) for i, cells in enumerate(rows))]


def details_block(title: str, lines: Sequence[str]) -> list[str]:
    """Render lines as a collapsed block with a title.

    Blank lines around them enable tables.
    """
    return [f"<details><summary>{html.escape(one_line(title))}</summary>", "", *lines, "", "</details>"]
