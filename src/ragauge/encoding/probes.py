"""Short texts that are hard to tokenize, and their tokenization."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ragauge.lineups import Probe
from ragauge.seams import Tokenizer

PROBES: Mapping[str, str] = MappingProxyType(
    {
        "plain text": "The ferry leaves the quay at noon.",
        "numbers": "3.14159 and 1,234,567 and -2e-10",
        "mixed case": "iPhone eBay McDonald NASA",
        "punctuation": 'Wait—what?! "Yes," (she said)…',
        "accents": "naïve café, Ærøskøbing, Łódź",
        "combining marks": "e\u0301le\u0300ve n\u0303",
        "Chinese and Japanese": "東京は晴れです。你好",
        "right to left": "שלום עולם مرحبا",
        "emoji": "👍🏽 👩‍🚀 🇳🇴",
        "code": "def f(x): return x**2 if x != 0 else None",
        "identifier": "assertRaisesRegexMatchingContextManager_v2",
        "URL": "https://docs.python.org/3/library/re.html#re.sub",
        "e-mail": "jane.doe+lists@mail.example.co.uk",
        "white space": "a  b\tc\n\n    d",
        "typos": "teh qiuck brwon foxx recieved",
    }
)
"""Probe texts by kind, in display order."""


def probe(tokenizer: Tokenizer, texts: Mapping[str, str] = PROBES) -> list[Probe]:
    """Tokenize each probe text.

    >>> from ragauge.systems.tokenizers.characters import Characters
    >>> probe(Characters(), {"mine": "a b"})
    [Probe(kind='mine', text='a b', pieces=['a', '␣', 'b'], unknown=0)]
    """
    numbers = tokenizer.encode(list(texts.values()))
    return [
        Probe(kind, text, tokenizer.pieces(text), 0 if tokenizer.unknown is None else mine.count(tokenizer.unknown))
        for (kind, text), mine in zip(texts.items(), numbers, strict=True)
    ]
