"""Parse one-word replies: the chosen word and the probability of each word."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ragauge.core.documents import NOTHING
from ragauge.core.structured_text import parse_json

MARGINS = " \t\r\n\"'`*_.,:;!?()[]{}#-▁ĠĊ"
"""Characters that models put around a word, and marks that some servers leave before a token."""
MARKS = str.maketrans({"▁": " ", "Ġ": " ", "Ċ": "\n"})
DOUBT = 0.01
"""Maximum probability of tokens that start several words, relative to all words; above it there is no result."""
LEAST = 0.5
"""Minimum total probability of the words; below it there is no result, because the rest is noise."""


def bare(text: str) -> str:
    """Remove surrounding punctuation from a word and fold its case."""
    return text.strip(MARGINS).casefold()


def chosen(text: str, words: Sequence[str], chances: Mapping[str, float] = NOTHING) -> str:
    """Return the word that a text consists of; the text itself if it is none of them.

    A text that continues after the word and a punctuation mark counts as the word if that word also has the highest
    probability: models tend to explain their choice, and the reply is cut off.

    >>> chosen("**Supported**.", ["supported", "unsupported"]), chosen("It is supported", ["supported"])
    ('supported', 'It is supported')
    >>> chosen("No, for Paris", ["yes", "no"], {"yes": 0.2, "no": 0.8}), chosen("No doubt", ["no"], {"no": 1.0})
    ('no', 'No doubt')
    """
    exact = next((word for word in words if bare(word) == bare(text)), None)
    if exact is None and chances:
        likely = max(chances, key=chances.__getitem__)
        if re.match(rf"{re.escape(bare(likely))}\s*([,.;:!\n]|\*\*)", text.lstrip(MARGINS).casefold()):
            exact = likely
    return text if exact is None else exact


def goes_on(text: str, word: str) -> bool:
    """Return whether text follows the word, which is then complete.

    >>> goes_on("**No**", "no"), goes_on("No", "no")
    (True, False)
    """
    return len(text.lstrip(MARGINS).casefold()) > len(bare(word))


def probabilities(tokens: Any, words: Sequence[str], text: str) -> dict[str, float]:
    """Compute the probability of each word at the start of a reply; empty if unclear.

    A token counts for the word that it equals or starts. Tokens that start no word are ignored, and the rest is scaled
    to a sum of 1. The result is empty if the words have less than half of the probability.

    >>> top = [{"token": " yes", "logprob": -0.5}, {"token": "No", "logprob": -1.5}, {"token": "Y", "logprob": -9}]
    >>> found = probabilities([{"token": " yes", "logprob": -0.5, "top_logprobs": top}], ["yes", "no"], "yes")
    >>> round(found["yes"], 3)
    0.731
    """
    place = _place(tokens, words, text)
    if place is None:
        return {}
    mass = dict.fromkeys(words, 0.0)
    unclear = 0.0
    for token, chance in _alternatives(place).items():
        begun = _begun(token, words)
        if len(begun) == 1:
            mass[begun[0]] += chance
        elif begun:
            unclear += chance
    total = sum(mass.values())
    if total < LEAST or unclear > DOUBT * (total + unclear):
        return {}
    return {word: value / total for word, value in mass.items()}


def _place(tokens: Any, words: Sequence[str], text: str) -> Mapping[str, Any] | None:
    """Find the token at which the reply begins, after any reasoning; None if missing.

    This is the last token from which the tokens spell the reply, or else the first one with a word.
    """
    all_of_them = [one for one in tokens if isinstance(one, Mapping)] if isinstance(tokens, list) else []
    said = [str(one.get("token", "")) for one in all_of_them]
    wanted = _plain(text)
    for at in reversed(range(len(said))):
        rest = _plain("".join(said[at:])) if wanted and _begun(said[at], words) else ""
        # The end-of-reply token may follow, but no letter or digit.
        if rest.startswith(wanted) and rest and not rest[len(wanted) :][:1].isalnum():
            return all_of_them[at]
    first = next((at for at, token in enumerate(said) if bare(token)), None)
    if first is not None and _begun(said[first], words) and wanted.startswith(bare(said[first])):
        return all_of_them[first]
    return None


def _alternatives(place: Mapping[str, Any]) -> dict[str, float]:
    """Return the probabilities of all tokens at one position, with the chosen one."""
    top = place.get("top_logprobs")
    found: dict[str, float] = {}
    for one in [place, *(top if isinstance(top, list) else ())]:
        chance = one.get("logprob") if isinstance(one, Mapping) else None
        if isinstance(chance, int | float) and not math.isnan(chance):
            found[str(one.get("token", ""))] = math.exp(min(0.0, chance))
    return found


def _begun(token: str, words: Sequence[str]) -> list[str]:
    """Return the words that equal a token, or else those that start with it."""
    start = bare(token)
    if not start:
        return []
    return [word for word in words if bare(word) == start] or [word for word in words if bare(word).startswith(start)]


def _plain(text: str) -> str:
    return " ".join(text.translate(MARKS).split()).strip(MARGINS).casefold()


TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "null": (type(None),),
}
CHECKED = {"type", "enum", "const", "properties", "required", "additionalProperties", "items", "minItems", "maxItems"}
KNOWN = CHECKED | {"title", "description", "$schema"}
"""Keywords that are checked or have no effect. Others are refused, so that no constraint is silently ignored."""


def words_of(schema: Mapping[str, Any] | None) -> list[str]:
    """Return the words of a schema that is only an enum of words; else an empty list.

    >>> words_of({"enum": ["yes", "no"]}), words_of({"type": "object"})
    (['yes', 'no'], [])
    """
    if schema is None or "enum" not in schema or schema.get("type", "string") != "string":
        return []
    words = list(schema["enum"])
    return words if all(isinstance(word, str) for word in words) else []


def obeys(value: Any, schema: Mapping[str, Any]) -> str | None:
    """Describe the first violation of a schema; None if the value is valid.

    >>> schema = {"type": "array", "items": {"enum": ["k1", "k2"]}, "minItems": 1}
    >>> obeys(["k1"], schema), obeys([], schema), obeys(["k9"], schema)
    (None, 'the reply has 0 items, not at least 1', "the reply[0] is 'k9', not one of 'k1', 'k2'")
    """
    return _violation(value, schema, "the reply")


def _violation(value: Any, schema: Mapping[str, Any], where: str) -> str | None:
    if unknown := [word for word in schema if word not in KNOWN]:
        raise ValueError(f"`{unknown[0]}` is no keyword of the schemas that are checked here")
    if "const" in schema and not _same(value, schema["const"]):
        return f"{where} is {_shown(value)}, not {_shown(schema['const'])}"
    if "enum" in schema and not any(_same(value, one) for one in schema["enum"]):
        return f"{where} is {_shown(value)}, not one of {', '.join(map(_shown, schema['enum']))}"
    if "type" in schema:
        kinds = [schema["type"]] if isinstance(schema["type"], str) else list(schema["type"])
        if not any(_is(value, kind) for kind in kinds):
            return f"{where} is {_shown(value)}, not of type {' or '.join(kinds)}"
    if isinstance(value, dict):
        return _of_object(value, schema, where)
    return _of_array(value, schema, where) if isinstance(value, list) else None


def _of_object(value: dict[str, Any], schema: Mapping[str, Any], where: str) -> str | None:
    properties: Mapping[str, Any] = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            return f"{where} has no `{name}`"
    others = schema.get("additionalProperties", True)
    for name, inner in value.items():
        if name in properties:
            found = _violation(inner, properties[name], f"{where}.{name}")
        elif others is False:
            return f"{where} has a `{name}`, which nobody asked for"
        else:
            found = None if others is True else _violation(inner, others, f"{where}.{name}")
        if found:
            return found
    return None


def _of_array(value: list[Any], schema: Mapping[str, Any], where: str) -> str | None:
    if len(value) < schema.get("minItems", 0):
        return f"{where} has {len(value)} items, not at least {schema['minItems']}"
    if len(value) > schema.get("maxItems", len(value)):
        return f"{where} has {len(value)} items, not at most {schema['maxItems']}"
    items = schema.get("items")
    if isinstance(items, Mapping):
        for place, inner in enumerate(value):
            if found := _violation(inner, items, f"{where}[{place}]"):
                return found
    return None


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):  # In Python a bool is an int; in JSON it is not.
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, TYPES[kind])


def _same(value: Any, wanted: Any) -> bool:
    if isinstance(value, bool) or isinstance(wanted, bool):
        return value is wanted
    return bool(value == wanted)


def _shown(value: Any) -> str:
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


CLOSED = re.compile(r"</think(?:ing)?>", re.I)
OPENED = re.compile(r"<think(?:ing)?>", re.I)


def spoken(text: str) -> str:
    """Return the text after the last `</think>`; JSON objects are returned unchanged.

    The opening tag may be missing, because some servers omit it.

    >>> spoken("Is it? Yes, or no.</think> no"), spoken("no"), spoken('{"reason": "it says </think>"}')
    (' no', 'no', '{"reason": "it says </think>"}')
    """
    ends = [found.end() for found in CLOSED.finditer(text)]
    return text if not ends or _is_json(text) else text[ends[-1] :]


def unfinished(text: str) -> bool:
    """Return whether a text contains the start of a thought.

    >>> unfinished(spoken("<think>It is")), unfinished(spoken("<think>It is</think> yes"))
    (True, False)
    """
    return OPENED.search(text) is not None


def _is_json(text: str) -> bool:
    try:
        return isinstance(parse_json(text, unique_keys=False), dict)
    except ValueError:
        return False
