"""LaTeX escaping."""

from __future__ import annotations

from ragauge.core.text import one_line

LATEX_ESCAPES = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"{\char34}",
    "`": r"{\char96}",
    "\ufffd": "?",
    **{mark: f"\\{mark}" for mark in "_&%#${}"},
}
"""LaTeX code for characters that LaTeX would interpret or typeset differently."""


def escape_latex(text: str) -> str:
    r"""Escape a text for LaTeX, as one line.

    >>> escape_latex("50% of a_b & {c}\nüber")
    '50\\% of a\\_b \\& \\{c\\} über'
    """
    plain = "".join(LATEX_ESCAPES.get(mark, mark) for mark in one_line(text))
    return plain.replace("--", "-{}-").replace("''", "'{}'")  # LaTeX would join pairs into a dash or a quotation mark.
