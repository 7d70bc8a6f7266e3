"""Specs that describe systems in a line: `dense(embedder=minilm, store=faiss(kind=hnsw))`, or in TOML.

A spec is a name with options. An option is a number, true or false, a word, another spec, or several of these joined
by `+`. A URI is a word that may contain `=`. A spec can only name registered plug-ins, never code.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ragauge.core.errors import BadInput
from ragauge.core.secrets import register_fields, register_secrets, register_url

SPEC_TOKEN = re.compile(
    r"""\s*(?:(?P<word>"[^"]*"|'[^']*'|[^\s()=,+"']+://[^\s(),+"']+|[^\s()=,+"']+)|(?P<mark>[()=,+]))"""
)
"""A quoted text, a URI (which may contain `=`), a word, or a mark."""
SPEC_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e-?\d+)?", re.I)
SPEC_EXAMPLES = {
    "system": "dense(embedder=minilm, store=faiss); several values are joined by +: weights=0.7+0.3",
    "embedder": "minilm, lm(tokenizer=bytes), or with a name: small=wordllama(dimensions=64)",
    "tokenizer": "bytes, bpe(vocabulary=8000), or with a name: mine=file(path=tokenizer.json)",
    "store": "exact, pgvector(index=hnsw, ef_search=100)",
    "fusion method": "rrf(k=60), wsum(weights=0.7+0.3)",
    "graph": "links, knn(neighbours=8), or several joined by +: links+knn(neighbours=8)",
}
"""Examples of specs for hints, by what they describe."""


@dataclass(frozen=True)
class Spec:
    """A name with options; `str` gives a text that can be parsed again, unless it has objects or a factory."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    factory: Any = None
    """Class of the user to build, from Python or the command line; None for the plug-in with this name."""

    def __str__(self) -> str:
        option_text = ", ".join(f"{name}={_format_spec_value(value)}" for name, value in self.options.items())
        # Two classes may have one name.
        name = self.name if self.factory is None else f"{self.name}@{id(self.factory):x}"
        return f"{name}({option_text})" if option_text else name


def parse_spec(text: str, noun: str = "system") -> Spec:
    """Parse a spec; error messages call it a `noun`.

    >>> parse_spec("hybrid(of=dense+bm25, weights=0.7+0.3)").options["weights"]
    [0.7, 0.3]
    >>> str(parse_spec("dense( store = faiss(kind=hnsw,m=32) )"))
    'dense(store=faiss(kind=hnsw, m=32))'
    >>> parse_spec("pgvector(dsn=postgresql://host/db?sslmode=disable, m=32)").options
    {'dsn': 'postgresql://host/db?sslmode=disable', 'm': 32}
    """
    reader = _SpecParser(text, noun)
    spec = reader.spec()
    reader.end()
    register_spec_secrets(spec)
    return spec


def parse_specs(text: str, noun: str = "system") -> list[Spec]:
    """Parse specs that are joined by `+`.

    >>> [str(one) for one in parse_specs("links + knn(neighbours=8)")]
    ['links', 'knn(neighbours=8)']
    """
    reader = _SpecParser(text, noun)
    specs = [reader.spec()]
    while reader.peek() == "+":
        reader.take("+")
        specs.append(reader.spec())
    reader.end()
    register_spec_secrets(specs)
    return specs


def split_name(text: str) -> tuple[str, str]:
    """Split `NAME=VALUE` into name and value; the name is empty if there is none.

    Equal signs inside brackets belong to the name or the value. A name has no slash, so paths have none.

    >>> split_name("mine=lm(tokenizer=bytes)"), split_name("lm(tokenizer=bytes)")
    (('mine', 'lm(tokenizer=bytes)'), ('', 'lm(tokenizer=bytes)'))
    >>> split_name("dense(embedder=minilm)=dense.run"), split_name("runs/a=1.run")
    (('dense(embedder=minilm)', 'dense.run'), ('', 'runs/a=1.run'))
    """
    depth = 0
    for position, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if character == "=" and depth <= 0:
            name, value = text[:position].strip(), text[position + 1 :].strip()
            is_named = name and value and not value.startswith("=") and not {"/", "\\"} & {*name}
            return (name, value) if is_named else ("", text)
    return "", text


def spec_from_toml(name: str, table: Mapping[str, Any]) -> Spec:
    """Build a spec from a TOML table: `kind` is its name, the other keys are options."""
    options = dict(table)
    kind = options.pop("kind", name)
    if not isinstance(kind, str):
        raise BadInput(f"the kind of system `{name}` must be a name, got {kind!r}")
    read = parse_spec(kind)
    spec = Spec(read.name, {**read.options, **{key: _value_from_toml(value) for key, value in options.items()}})
    register_spec_secrets(spec)
    return spec


_HIDDEN_OPTIONS = "pass|password|pwd|secret|token|key|auth|headers|extra|dsn"
SECRET_OPTION = re.compile(rf"(^|_)({_HIDDEN_OPTIONS})$", re.I)
SECRET_START = re.compile(rf"(?:^|[(,\s_])(?:{_HIDDEN_OPTIONS})\s*=\s*|\w://", re.I)
"""Position where a secret may begin in a spec that cannot be parsed."""
DSN_PASSWORD = re.compile(r"""\b\w*password\s*=\s*('(?:[^'\\]|\\.)*'|[^\s'"]+)""", re.I)


def register_spec_secrets(value: Any) -> None:
    """Register the secrets in the options of a spec, so that they are redacted."""
    if isinstance(value, Spec):
        register_spec_secrets(value.options)
    elif isinstance(value, list):
        for item in value:
            register_spec_secrets(item)
    elif isinstance(value, Mapping):
        register_fields(value)
        for item in value.values():
            register_spec_secrets(item)
    elif isinstance(value, str):
        _register_text_secrets(value)


def _register_text_secrets(text: str) -> None:
    if "://" in text:
        with suppress(ValueError):  # not a valid URL
            register_url(text)
    register_secrets(*(password.strip("'") for password in DSN_PASSWORD.findall(text)))


def redact_spec(value: Any, name: str = "") -> Any:
    """Return a spec without secrets: secret options, and credentials in URLs.

    >>> str(redact_spec(parse_spec('http(url="http://me:pass@host/search?key=1", api_key=abc)')))
    'http(url=http://host/search, api_key=…)'
    """
    if isinstance(value, Spec):
        return Spec(value.name, {key: redact_spec(item, key) for key, item in value.options.items()})
    if isinstance(value, list):
        return [redact_spec(item, name) for item in value]
    if SECRET_OPTION.search(name):
        return "…"
    if isinstance(value, str) and "://" in value:
        return re.sub(r"://[^/\s]*@", "://", re.split(r"[?#]", value)[0])
    return value


def _value_from_toml(value: Any) -> Any:
    if isinstance(value, Mapping) and "kind" in value:
        return spec_from_toml("", value)
    return [_value_from_toml(item) for item in value] if isinstance(value, list) else value


def _format_spec_value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "+".join(map(_format_spec_value, value))
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        is_plain = (
            re.fullmatch(r"[^\s()=,+\"']+", value)
            and not SPEC_NUMBER.fullmatch(value)
            and value not in ("true", "false")
        )
        if is_plain:
            return value
        # A word cannot have both kinds of quotes; double ones become single then.
        return f"'{value}'" if '"' in value and "'" not in value else '"' + value.replace('"', "'") + '"'
    # All digits, because a spec also identifies a system; without the plus sign, which joins values.
    return float.__repr__(value).replace("e+", "e") if isinstance(value, float) else str(value)


class _SpecParser:
    def __init__(self, text: str, noun: str) -> None:
        self.text = text
        self.what = noun
        self.tokens: list[str] = []
        self.at = 0
        position = 0
        while text[position:].strip():
            match = SPEC_TOKEN.match(text, position)
            if match is None:
                raise self.wrong("expected a closing quote, got the end")
            self.tokens.append(match["word"] or match["mark"])
            position = match.end()

    def wrong(self, problem: str, token: str = "") -> BadInput:
        """Build the error of an invalid spec.

        Anything that may be part of a secret is left out.
        """
        secret = SECRET_START.search(self.text)
        safe_text = self.text if secret is None else f"{self.text[: secret.end()]}…"
        token_text = f" `{token}`" if token and token in safe_text else ""
        return BadInput(
            f"the {self.what} `{safe_text}` cannot be read: {problem}{token_text}",
            hint=SPEC_EXAMPLES.get(self.what, SPEC_EXAMPLES["system"]),
        )

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self, required_token: str = "") -> str:
        token = self.peek()
        if not token or (required_token and token != required_token):
            expected = f"`{required_token}`" if required_token else "a name or a value"
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
        if SPEC_NUMBER.fullmatch(word):
            return float(word) if re.search(r"[.eE]", word) else int(word)
        return word
