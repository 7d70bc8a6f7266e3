"""Checks of the HTML in which a notebook shows a result."""

from __future__ import annotations

from html.parser import HTMLParser

ELEMENTS = "a caption code details div li p small strong style summary sup table tbody td th thead tr ul"


class FragmentParser(HTMLParser):
    """Collects elements, and fails if one is not closed or runs code."""

    def __init__(self):
        super().__init__()
        self.open, self.elements, self.texts = [], [], []

    def handle_starttag(self, tag, attrs):
        assert tag in ELEMENTS.split(), tag
        assert not any(name.startswith("on") or str(value).startswith("javascript:") for name, value in attrs)
        self.open.append(tag)
        self.elements.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def check_fragment(text):
    """Check that a fragment is well formed, has a table and no script, and return its text."""
    parser = FragmentParser()
    parser.feed(text)
    parser.close()
    assert parser.open == []
    assert "table" in parser.elements
    return " ".join(parser.texts)
