"""Griffe extension: show the doctests of docstrings as code on the documentation site."""

from __future__ import annotations

import re
from typing import Any

import griffe

DOCTEST = re.compile(r"(?m)(?:^>>> .*(?:\n(?!\s*$).+)*\n?)+")


class FenceDoctests(griffe.Extension):
    """Put the doctests of every docstring into fences, because brackets in them would be read as links."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Fence the doctests in the docstring of an object."""
        if obj.docstring is not None:
            obj.docstring.value = DOCTEST.sub(lambda m: f"```python\n{m[0].rstrip()}\n```\n", obj.docstring.value)
