"""Specs that describe systems in a line: `dense(embedder=minilm, store=faiss(kind=hnsw))`, or in TOML.

A spec is a name with options. An option is a number, true or false, a word, another spec, or several of these joined
by `+`. A spec can only name registered plug-ins, never code.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ragauge.core.errors import BadInput
from ragauge.core.secrets import register_fields, register_secrets, register_url

TOKEN = re.compile(r"""\s*(?:(?P<word>"[^"]*"|'[^']*'|[^\s()=,+"']+)|(?P<mark>[()=,+]))""")
NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e-?\d+)?", re.I)
NAMED = re.compile(r"\s*([^()=]+?)\s*=\s*(.+)", re.S)
"""`NAME=SPEC`; equal signs inside brackets belong to the spec."""
EXAMPLES = {
    "system": "dense(embedder=minilm, store=faiss); several values are joined by +: weights=0.7+0.3",
    "embedder": "minilm, lm(tokenizer=bytes), or with a name: small=wordllama(dimensions=64)",
    "tokenizer": "bytes, bpe(vocabulary=8000), or with a name: mine=file(path=tokenizer.json)",
    "store": "exact, pgvector(index=hnsw, ef_search=100)",
    "graph": "links, knn(neighbours=8), or several joined by +: links+knn(neighbours=8)",
}
"""Examples of specs for hints, by what they describe."""


@dataclass(frozen=True)
class Spec:
    """A name with options; `str` gives a text that can be parsed again."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        inside = ", ".join(f"{name}={_text(value)}" for name, value in self.options.items())
        return f"{self.name}({inside})" if inside else self.name


def parse(text: str, what: str = "system") -> Spec:
    """Parse a spec; `what` it describes is used in error messages.

    >>> parse("hybrid(of=dense+bm25, weights=0.7+0.3)").options["weights"]
    [0.7, 0.3]
    >>> str(parse("dense( store = faiss(kind=hnsw,m=32) )"))
    'dense(store=faiss(kind=hnsw, m=32))'
    """
    reader = _Reader(text, what)
    spec = reader.spec()
    reader.end()
    register_options(spec)
    return spec


def parse_several(text: str, what: str = "system") -> list[Spec]:
    """Parse specs that are joined by `+`.

    >>> [str(one) for one in parse_several("links + knn(neighbours=8)")]
    ['links', 'knn(neighbours=8)']
    """
    reader = _Reader(text, what)
    found = [reader.spec()]
    while reader.peek() == "+":
        reader.take("+")
        found.append(reader.spec())
    reader.end()
    register_options(found)
    return found


def named_description(text: str) -> tuple[str, str]:
    """Split `NAME=SPEC` into name and spec; the name is empty if there is only a spec.

    >>> named_description("mine=lm(tokenizer=bytes)"), named_description("lm(tokenizer=bytes)")
    (('mine', 'lm(tokenizer=bytes)'), ('', 'lm(tokenizer=bytes)'))
    """
    found = NAMED.fullmatch(text)
    return (found[1], found[2]) if found else ("", text)


def from_table(name: str, table: Mapping[str, Any]) -> Spec:
    """Build a spec from a TOML table: `kind` is its name, the other keys are options."""
    options = dict(table)
    kind = options.pop("kind", name)
    if not isinstance(kind, str):
        raise BadInput(f"the kind of system `{name}` is {kind!r}, not a name")
    read = parse(kind)
    spec = Spec(read.name, {**read.options, **{key: _value(value) for key, value in options.items()}})
    register_options(spec)
    return spec


_NAMES = "pass|password|pwd|secret|token|key|auth|headers|extra|dsn"
SECRET = re.compile(rf"(^|_)({_NAMES})$", re.I)
IN_TEXT = re.compile(rf"(?:^|[(,\s_])(?:{_NAMES})\s*=\s*|\w://", re.I)
"""Position where a secret may begin in a spec that cannot be parsed."""
DSN_PASSWORD = re.compile(r"""\b\w*password\s*=\s*('(?:[^'\\]|\\.)*'|[^\s'"]+)""", re.I)


def register_options(value: Any) -> None:
    """Register the secrets in the options of a spec, so that they are redacted."""
    if isinstance(value, Spec):
        register_options(value.options)
    elif isinstance(value, list):
        for one in value:
            register_options(one)
    elif isinstance(value, Mapping):
        register_fields(value)
        for one in value.values():
            register_options(one)
    elif isinstance(value, str):
        _register_text(value)


def _register_text(text: str) -> None:
    if "://" in text:
        with suppress(ValueError):  # not a valid URL
            register_url(text)
    register_secrets(*(found.strip("'") for found in DSN_PASSWORD.findall(text)))


def without_secrets(value: Any, name: str = "") -> Any:
    """Return a spec without secrets: secret options, and credentials in URLs.

    >>> str(without_secrets(parse('http(url="http://me:pass@host/search?key=1", api_key=abc)')))
    'http(url=http://host/search, api_key=…)'
    """
    if isinstance(value, Spec):
        return Spec(value.name, {key: without_secrets(one, key) for key, one in value.options.items()})
    if isinstance(value, list):
        return [without_secrets(one, name) for one in value]
    if SECRET.search(name):
        return "…"
    if isinstance(value, str) and "://" in value:
        return re.sub(r"://[^/\s]*@", "://", re.split(r"[?#]", value)[0])
    return value


def _value(value: Any) -> Any:
    if isinstance(value, Mapping) and "kind" in value:
        return from_table("", value)
    return [_value(one) for one in value] if isinstance(value, list) else value


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "+".join(map(_text, value))
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        plain = (
            re.fullmatch(r"[^\s()=,+\"']+", value) and not NUMBER.fullmatch(value) and value not in ("true", "false")
        )
        if plain:
            return value
        # A word cannot have both kinds of quotes; double ones become single then.
        return f"'{value}'" if '"' in value and "'" not in value else '"' + value.replace('"', "'") + '"'
    # All digits, because a spec also identifies a system; without the plus sign, which joins values.
    return float.__repr__(value).replace("e+", "e") if isinstance(value, float) else str(value)


class _Reader:
    def __init__(self, text: str, what: str) -> None:
        self.text = text
        self.what = what
        self.tokens: list[str] = []
        self.at = 0
        place = 0
        while text[place:].strip():
            found = TOKEN.match(text, place)
            if found is None:
                raise self.wrong("expected a closing quote, got the end")
            self.tokens.append(found["word"] or found["mark"])
            place = found.end()

    def wrong(self, what: str, token: str = "") -> BadInput:
        """Build the error of an invalid spec.

        Anything that may be part of a secret is left out.
        """
        secret = IN_TEXT.search(self.text)
        shown = self.text if secret is None else f"{self.text[: secret.end()]}…"
        got = f" `{token}`" if token and token in shown else ""
        return BadInput(
            f"the {self.what} `{shown}` cannot be read: {what}{got}",
            hint=EXAMPLES.get(self.what, EXAMPLES["system"]),
        )

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self, wanted: str = "") -> str:
        token = self.peek()
        if not token or (wanted and token != wanted):
            expected = f"`{wanted}`" if wanted else "a name or a value"
            raise self.wrong(f"expected {expected}, got {'' if token else 'the end'}".rstrip(), token)
        self.at += 1
        return token

    def end(self) -> None:
        if self.at < len(self.tokens):
            raise self.wrong("expected the end, got", self.tokens[self.at])

    def word(self) -> str:
        token = self.take()
        if token in ("(", ")", "=", ",", "+"):
            raise self.wrong("expected a name, got", token)
        return token

    def spec(self) -> Spec:
        name = self.word()
        options: dict[str, Any] = {}
        if self.peek() == "(":
            self.take("(")
            while self.peek() != ")":
                key = self.word()
                if key in options:
                    raise self.wrong("duplicate option", key)
                self.take("=")
                options[key] = self.value()
                if self.peek() != ")":
                    self.take(",")
            self.take(")")
        return Spec(name, options)

    def value(self) -> Any:
        first = self.single()
        if self.peek() != "+":
            return first
        values = [first]
        while self.peek() == "+":
            self.take("+")
            values.append(self.single())
        return values

    def single(self) -> Any:
        word = self.peek()
        if self.tokens[self.at + 1 : self.at + 2] == ["("]:
            return self.spec()
        word = self.word()
        if word[0] in "\"'":
            return word[1:-1]
        if word in ("true", "false"):
            return word == "true"
        if NUMBER.fullmatch(word):
            return float(word) if re.search(r"[.eE]", word) else int(word)
        return word
