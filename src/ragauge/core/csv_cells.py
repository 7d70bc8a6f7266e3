"""CSV cells that spreadsheets would run as formulas: escaped when written, restored when read."""

from __future__ import annotations

import csv
import re

MAX_CELL_CHARS = 1 << 30
_FORMULA_START = re.compile(r"'*(?:[=@\t\r]|[+-](?=.*[(|!=]))")
"""Start of a cell that a spreadsheet may run. A sign alone also starts numbers and many ids, which are harmless."""


def neutralise_cell(text: str) -> str:
    """Put an apostrophe before a cell that a spreadsheet would run as a formula.

    >>> neutralise_cell("=1+1"), neutralise_cell("-0.5"), neutralise_cell("-cmd|' /C calc'!A0"), neutralise_cell("-x7")
    ("'=1+1", '-0.5', "'-cmd|' /C calc'!A0", '-x7')
    """
    return f"'{text}" if text and text[0] in "=@\t\r+-'" and _FORMULA_START.match(text) else text


def restore_cell(text: str) -> str:
    """Undo `neutralise_cell`.

    >>> restore_cell("'=1+1"), restore_cell("'tis")
    ('=1+1', "'tis")
    """
    return text[1:] if text.startswith("'") and _FORMULA_START.match(text) else text


def allow_long_cells() -> None:
    """Let the csv module read long cells: those with documents or transcripts exceed its default limit.

    The limit belongs to the process. It is not restored, because readers in other threads would fail then.
    """
    csv.field_size_limit(max(csv.field_size_limit(), MAX_CELL_CHARS))
