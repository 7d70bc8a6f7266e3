"""Find the request format that an endpoint accepts, from the strictest to the least strict."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ragauge.judges.chats.failures import Problem
from ragauge.judges.schemas import obeys, words_of
from ragauge.judges.thoughts import unfinished
from ragauge.seams import Message
from ragauge.structured_text import parse_json
from ragauge.verdicts import Reply

RUNGS = ("json_schema", "json_object", "plain")
"""Ways to request structured replies, strictest first."""
SHAPE_REFUSED = re.compile(r"response_format|json_schema|json_object|json mode|grammar|structured|guided|schema")
NOT_TAKEN = re.compile(r"support|permitted|allowed|unrecogni|unknown|unexpected|extra|only the default")
"""Wording of a server that does not support a parameter or allows only its default; other errors are the user's."""
TOP = (20, 5, 0)
"""Numbers of token probabilities to request, in order of preference."""
ONE_WORD = 8
"""Maximum number of tokens of a one-word reply."""
SHAPE = "Reply with JSON and nothing else. The JSON must obey this schema:\n"


class Manner:
    """Request bodies for one endpoint, adapted when it refuses or ignores a feature."""

    def __init__(
        self, settings: Mapping[str, Any], max_tokens: int | None, rungs: Sequence[str], *, grammar: bool = False
    ) -> None:
        self._settings = dict(settings)
        self._grammar = grammar
        self._max_tokens = max_tokens
        self._limit_name = "max_tokens"
        self._rungs = rungs
        self._rung = 0
        self._obeyed = False
        """Whether a reply to `json_schema` was valid. Later violations are then treated as exceptions."""
        self._short = True
        self._probable = True
        self._top = 0
        self.notes: list[str] = []
        """Requested features that the endpoint does not support, as text."""

    def how(self, words: Sequence[str], schema: Mapping[str, Any] | None) -> str:
        """Return the format in which a reply is requested now."""
        return "tokens" if words else "plain" if schema is None else self._rungs[self._rung]

    def body(self, messages: Sequence[Message], schema: Mapping[str, Any] | None, how: str) -> dict[str, Any]:
        """Return the request body, without the model name."""
        body: dict[str, Any] = {"messages": list(messages), **self._settings}
        limit = self._max_tokens
        if how == "tokens":
            limit = ONE_WORD if self._short else limit
            if self._grammar:
                # Allow a capital letter, so that a model that prefers "No" is not forced to say "yes".
                forms = [form for word in words_of(schema) for form in dict.fromkeys((word, word.capitalize()))]
                body["grammar"] = f"root ::= {' | '.join(map(json.dumps, forms))}"
            if self._probable:
                body["logprobs"] = True
                if TOP[self._top]:
                    body["top_logprobs"] = TOP[self._top]
        elif how == "json_schema":
            body["response_format"] = {"type": how, "json_schema": {"name": "reply", "strict": True, "schema": schema}}
        elif schema is not None:
            body["messages"] = told(messages, schema)
            if how == "json_object":
                body["response_format"] = {"type": how}
        if limit is not None:
            body[self._limit_name] = limit
        return body

    def stepped_down(self, problem: Problem, body: Mapping[str, Any], how: str) -> bool:
        """Return whether a refusal can be avoided by another format, which is then used."""
        about = problem.about
        if problem.status in (500, 501):  # Some servers fail on a grammar instead of refusing it.
            return "response_format" in body and "grammar" in about and self._next_rung(how, problem.words)
        if problem.status not in (400, 422):
            return False
        if "max_tokens" in body and ("max_completion_tokens" in about or problem.parameter == "max_tokens"):
            self._limit_name = "max_completion_tokens"
            return True
        if "top_logprobs" in body and "top_logprobs" in about:
            self._top = max(self._top, min(TOP.index(body["top_logprobs"]) + 1, len(TOP) - 1))
            return True
        if "logprobs" in body and "logprobs" in about:
            self._probable = False
            self._note("it gives no probabilities")
            return True
        if "response_format" in body and SHAPE_REFUSED.search(about):
            return self._next_rung(how, problem.words)
        for name in ("temperature", "seed"):
            if name in body and re.search(rf"\b{name}\b", about) and NOT_TAKEN.search(about):
                self._settings.pop(name, None)
                self._note(f"it takes no {name}, so replies come with its own")
                return True
        return False

    def ask_again(self, reply: Reply, body: Mapping[str, Any], how: str, schema: Mapping[str, Any]) -> bool:
        """Return whether a reply shows that the format does not work.

        The next format is then used.
        """
        if how == "tokens":
            short = body.get(self._limit_name) == ONE_WORD != self._max_tokens
            if (reply.text and not unfinished(reply.text)) or reply.finish != "length" or not short:
                return False
            self._short = False  # The model writes its reasoning first.
            return True
        if how != "json_schema" or self._obeyed or reply.finish != "stop":
            return False
        violation = ignored(reply.text, schema)
        if violation is not None:
            return self._next_rung(how, violation)
        self._obeyed = reply.text.rstrip().endswith(("}", "]"))
        return False

    def _next_rung(self, how: str, why: str) -> bool:
        place = self._rungs.index(how) + 1
        if place >= len(self._rungs):
            return False
        if place > self._rung:
            self._rung = place
            self._note(f"shapes are asked for as {self._rungs[place]}, for with {how}: {' '.join(why.split())[:200]}")
        return True

    def _note(self, words: str) -> None:
        if words not in self.notes:
            self.notes.append(words)


def told(messages: Sequence[Message], schema: Mapping[str, Any]) -> list[Message]:
    """Append the schema and an instruction to the system message."""
    shape = SHAPE + json.dumps(schema, ensure_ascii=False)
    if messages and messages[0].get("role") == "system":
        first = {**messages[0], "content": f"{messages[0]['content']}\n\n{shape}"}
        return [first, *messages[1:]]
    return [{"role": "system", "content": shape}, *messages]


def ignored(text: str, schema: Mapping[str, Any]) -> str | None:
    """Describe how a reply violates the outer level of a schema; None if it does not.

    >>> schema = {"type": "object", "properties": {"a": {"enum": ["x"]}}, "required": ["a"]}
    >>> ignored("All is well.", schema), ignored('{"b": 1}', schema), ignored('{"a": "y"}', schema)
    ('the reply is no JSON', 'the reply has no `a`', None)
    >>> ignored('{"a": "x', schema)
    """
    try:
        value = parse_json(text, unique_keys=False)
    except ValueError:
        # A truncated or empty reply does not show that the format was ignored.
        return None if text.lstrip()[:1] in ("", "{", "[") else "the reply is no JSON"
    # Only the outermost level: the code that parses the reply checks the rest.
    outermost = {name: value for name, value in schema.items() if name in ("type", "required")}
    return obeys(value, outermost)
