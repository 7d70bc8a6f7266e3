"""Parse replies: one-word replies, JSON schemas, and <think> blocks."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ragauge.core.documents import EMPTY_MAPPING
from ragauge.core.structured_text import parse_json

WORD_MARGINS = " \t\r\n\"'`*_.,:;!?()[]{}#-▁ĠĊ"
"""Characters that models put around a word, and marks that some servers leave before a token."""
TOKEN_MARKS = str.maketrans({"▁": " ", "Ġ": " ", "Ċ": "\n"})
MAX_AMBIGUOUS_SHARE = 0.01
"""Maximum probability of tokens that start several words, relative to all words; above it there is no result."""
MIN_WORD_PROBABILITY = 0.5
"""Minimum total probability of the words; below it there is no result, because the rest is noise."""


def normalise_word(text: str) -> str:
    """Remove surrounding punctuation from a word and fold its case."""
    return text.strip(WORD_MARGINS).casefold()


def match_word(text: str, words: Sequence[str], chances: Mapping[str, float] = EMPTY_MAPPING) -> str:
    """Return the word that a text consists of; the text itself if it is none of them.

    A text that continues after the word and a punctuation mark counts as the word if that word also has the highest
    probability: models tend to explain their choice, and the reply is cut off.

    >>> match_word("**Supported**.", ["supported", "unsupported"]), match_word("It is supported", ["supported"])
    ('supported', 'It is supported')
    >>> match_word("No, for Paris", ["yes", "no"], {"yes": 0.2, "no": 0.8}), match_word("No doubt", ["no"], {"no": 1.0})
    ('no', 'No doubt')
    """
    exact = next((word for word in words if normalise_word(word) == normalise_word(text)), None)
    if exact is None and chances:
        likely = max(chances, key=chances.__getitem__)
        if re.match(rf"{re.escape(normalise_word(likely))}\s*([,.;:!\n]|\*\*)", text.lstrip(WORD_MARGINS).casefold()):
            exact = likely
    return text if exact is None else exact


def has_trailing_text(text: str, word: str) -> bool:
    """Return whether text follows the word, which is then complete.

    >>> has_trailing_text("**No**", "no"), has_trailing_text("No", "no")
    (True, False)
    """
    return len(text.lstrip(WORD_MARGINS).casefold()) > len(normalise_word(word))


def compute_word_probabilities(tokens: Any, words: Sequence[str], text: str) -> dict[str, float]:
    """Compute the probability of each word at the start of a reply; empty if unclear.

    A token counts for the word that it equals or starts. Tokens that start no word are ignored, and the rest is scaled
    to a sum of 1. The result is empty if the words have less than half of the probability.

    >>> top = [{"token": " yes", "logprob": -0.5}, {"token": "No", "logprob": -1.5}, {"token": "Y", "logprob": -9}]
    >>> found = compute_word_probabilities([{"token": " yes", "logprob": -0.5, "top_logprobs": top}], ["yes", "no"],
    ...     "yes")
    >>> round(found["yes"], 3)
    0.731
    """
    token_entry = _find_word_token(tokens, words, text)
    if token_entry is None:
        return {}
    mass = dict.fromkeys(words, 0.0)
    unclear = 0.0
    for token, probability in _token_probabilities(token_entry).items():
        matches = _find_words_by_prefix(token, words)
        if len(matches) == 1:
            mass[matches[0]] += probability
        elif matches:
            unclear += probability
    total = sum(mass.values())
    if total < MIN_WORD_PROBABILITY or unclear > MAX_AMBIGUOUS_SHARE * (total + unclear):
        return {}
    return {word: value / total for word, value in mass.items()}


def _find_word_token(tokens: Any, words: Sequence[str], text: str) -> Mapping[str, Any] | None:
    """Find the token at which the reply begins, after any reasoning; None if missing.

    This is the last token from which the tokens spell the reply, or else the first one with a word.
    """
    entries = [token for token in tokens if isinstance(token, Mapping)] if isinstance(tokens, list) else []
    texts = [str(token.get("token", "")) for token in entries]
    reply = _normalise_reply(text)
    for at in reversed(range(len(texts))):
        rest = _normalise_reply("".join(texts[at:])) if reply and _find_words_by_prefix(texts[at], words) else ""
        # The end-of-reply token may follow, but no letter or digit.
        if rest.startswith(reply) and rest and not rest[len(reply) :][:1].isalnum():
            return entries[at]
    first = next((at for at, token in enumerate(texts) if normalise_word(token)), None)
    if (
        first is not None
        and _find_words_by_prefix(texts[first], words)
        and reply.startswith(normalise_word(texts[first]))
    ):
        return entries[first]
    return None


def _token_probabilities(token_entry: Mapping[str, Any]) -> dict[str, float]:
    """Return the probabilities of all tokens at one position, with the chosen one."""
    top = token_entry.get("top_logprobs")
    probabilities: dict[str, float] = {}
    for entry in [token_entry, *(top if isinstance(top, list) else ())]:
        logprob = entry.get("logprob") if isinstance(entry, Mapping) else None
        if isinstance(logprob, int | float) and not math.isnan(logprob):
            probabilities[str(entry.get("token", ""))] = math.exp(min(0.0, logprob))
    return probabilities


def _find_words_by_prefix(token: str, words: Sequence[str]) -> list[str]:
    """Return the words that equal a token, or else those that start with it."""
    start = normalise_word(token)
    if not start:
        return []
    return [word for word in words if normalise_word(word) == start] or [
        word for word in words if normalise_word(word).startswith(start)
    ]


def _normalise_reply(text: str) -> str:
    return " ".join(text.translate(TOKEN_MARKS).split()).strip(WORD_MARGINS).casefold()


JSON_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "null": (type(None),),
}
CHECKED_KEYWORDS = {
    "type",
    "enum",
    "const",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "minItems",
    "maxItems",
}
ALLOWED_KEYWORDS = CHECKED_KEYWORDS | {"title", "description", "$schema"}
"""Keywords that are checked or have no effect. Others are refused, so that no constraint is silently ignored."""


def enum_words(schema: Mapping[str, Any] | None) -> list[str]:
    """Return the words of a schema that is only an enum of words; else an empty list.

    >>> enum_words({"enum": ["yes", "no"]}), enum_words({"type": "object"})
    (['yes', 'no'], [])
    """
    if schema is None or "enum" not in schema or schema.get("type", "string") != "string":
        return []
    words = list(schema["enum"])
    return words if all(isinstance(word, str) for word in words) else []


def schema_violation(value: Any, schema: Mapping[str, Any]) -> str | None:
    """Describe the first violation of a schema; None if the value is valid.

    >>> schema = {"type": "array", "items": {"enum": ["k1", "k2"]}, "minItems": 1}
    >>> schema_violation(["k1"], schema), schema_violation([], schema), schema_violation(["k9"], schema)
    (None, 'the reply has 0 items, not at least 1', "the reply[0] is 'k9', not one of 'k1', 'k2'")
    """
    return _find_violation(value, schema, "the reply")


def _find_violation(value: Any, schema: Mapping[str, Any], where: str) -> str | None:
    if unknown := [word for word in schema if word not in ALLOWED_KEYWORDS]:
        raise ValueError(f"`{unknown[0]}` is not a supported keyword of schemas")
    if "const" in schema and not _is_same_value(value, schema["const"]):
        return f"{where} is {_describe_value(value)}, not {_describe_value(schema['const'])}"
    if "enum" in schema and not any(_is_same_value(value, choice) for choice in schema["enum"]):
        return f"{where} is {_describe_value(value)}, not one of {', '.join(map(_describe_value, schema['enum']))}"
    if "type" in schema:
        kinds = [schema["type"]] if isinstance(schema["type"], str) else list(schema["type"])
        if not any(_has_json_type(value, kind) for kind in kinds):
            return f"{where} is {_describe_value(value)}, not of type {' or '.join(kinds)}"
    if isinstance(value, dict):
        return _find_object_violation(value, schema, where)
    return _find_array_violation(value, schema, where) if isinstance(value, list) else None


def _find_object_violation(value: dict[str, Any], schema: Mapping[str, Any], where: str) -> str | None:
    properties: Mapping[str, Any] = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            return f"{where} has no `{name}`"
    additional = schema.get("additionalProperties", True)
    for name, inner in value.items():
        if name in properties:
            violation = _find_violation(inner, properties[name], f"{where}.{name}")
        elif additional is False:
            return f"{where} has an unexpected `{name}`"
        else:
            violation = None if additional is True else _find_violation(inner, additional, f"{where}.{name}")
        if violation:
            return violation
    return None


def _find_array_violation(value: list[Any], schema: Mapping[str, Any], where: str) -> str | None:
    if len(value) < schema.get("minItems", 0):
        return f"{where} has {len(value)} items, not at least {schema['minItems']}"
    if len(value) > schema.get("maxItems", len(value)):
        return f"{where} has {len(value)} items, not at most {schema['maxItems']}"
    items = schema.get("items")
    if isinstance(items, Mapping):
        for position, inner in enumerate(value):
            if violation := _find_violation(inner, items, f"{where}[{position}]"):
                return violation
    return None


def _has_json_type(value: Any, kind: str) -> bool:
    if isinstance(value, bool):  # In Python a bool is an int; in JSON it is not.
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, JSON_TYPES[kind])


def _is_same_value(value: Any, expected: Any) -> bool:
    if isinstance(value, bool) or isinstance(expected, bool):
        return value is expected
    return bool(value == expected)


def _describe_value(value: Any) -> str:
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


THOUGHT_END = re.compile(r"</think(?:ing)?>", re.I)
THOUGHT_START = re.compile(r"<think(?:ing)?>", re.I)


def strip_thoughts(text: str) -> str:
    """Return the text after the last `</think>`; JSON objects are returned unchanged.

    The opening tag may be missing, because some servers omit it.

    >>> (strip_thoughts("Is it? Yes, or no.</think> no"), strip_thoughts("no"),
    ...  strip_thoughts('{"reason": "it says </think>"}'))
    (' no', 'no', '{"reason": "it says </think>"}')
    """
    ends = [match.end() for match in THOUGHT_END.finditer(text)]
    return text if not ends or _is_json_object(text) else text[ends[-1] :]


def has_thought_start(text: str) -> bool:
    """Return whether a text contains the start of a thought.

    >>> has_thought_start(strip_thoughts("<think>It is")), has_thought_start(strip_thoughts("<think>It is</think> yes"))
    (True, False)
    """
    return THOUGHT_START.search(text) is not None


def _is_json_object(text: str) -> bool:
    try:
        return isinstance(parse_json(text, unique_keys=False), dict)
    except ValueError:
        return False
