"""Chat model that compares texts literally, so that its verdicts can be worked out by hand.

Claims: a sentence is one claim, or several separated by " and ". Support: a source supports a claim if it contains the
words of the claim in a row. It contradicts the claim if it contains them only after its "not" is removed. Usefulness: a
passage is useful if it contains the last word of the question. Generated questions: the first line of the answer with a
question mark. The texts are read from the fences of the prompt, and nothing else is used.
"""

from __future__ import annotations

import json
import re
from typing import Any

FENCE = re.compile(r'<(data-[0-9a-f]{16}) id="(\w+)">\n(.*?)\n</\1>', re.S)


def normalise(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower()))


def answer(messages: Any, schema: Any) -> str:
    """Return the reply to the messages that ragauge writes for any task of a judge."""
    user = messages[1]["content"]
    blocks = {name: text for _, name, text in FENCE.findall(user)}
    if schema is not None and "enum" in schema:
        return _answer_word(messages[0]["content"], user)
    if "List the claims" in user:
        ids = re.findall(r"\bs\d+\b", user.rsplit("List the claims", 1)[1])
        claims = {item: [part.strip(" .") for part in blocks[item].split(" and ")] for item in ids}
        return json.dumps({"sentences": [{"id": item, "claims": claims[item]} for item in ids]})
    if "Check every one" in user:
        return json.dumps(_check_claims(user, blocks))
    if "Judge every one" in user:
        ids = re.findall(r"\bk\d+\b", user.rsplit("Judge every one", 1)[1])
        last = normalise(blocks["question"]).split()[-1]
        verdicts = [
            {"id": item, "reason": f"looked for {last}", "useful": last in normalise(blocks[item])} for item in ids
        ]
        return json.dumps({"verdicts": verdicts})
    n = int(re.search(r"Write (\d+) questions", user)[1])  # type: ignore[index]
    text = blocks["answer"].splitlines()[0]
    return json.dumps({"refusal": text.startswith("I do not know"), "questions": [text.rstrip(".") + "?"] * n})


def _check_claims(user: str, blocks: dict[str, str]) -> dict[str, Any]:
    entries_by_text: dict[str, Any] = {}
    for name, listed in re.findall(r"(of_\w+): ((?:\w+(?:, )?)+)", user.rsplit("Check every one", 1)[1]):
        own = name.removeprefix("of_")
        sources = [
            source
            for source in blocks
            if source not in (own, "history", "question") and not re.match(r"[ars]\d", source)
        ]
        entries = []
        for claim in listed.split(", "):
            words = normalise(blocks[claim])
            supporting = [source for source in sources if words in normalise(blocks[source])]
            contradicting = [
                source
                for source in sources
                if source not in supporting and words in normalise(blocks[source]).replace(" not ", " ")
            ]
            verdict = {"supported_by": supporting, "supported_together": [], "contradicted_by": contradicting}
            entries.append({"id": claim, "reason": "read", **verdict})
        entries_by_text[name] = entries
    return entries_by_text


def _answer_word(rubric: str, user: str) -> str:
    head, _, tail = user.rpartition("The claim:" if "claim" in rubric.splitlines()[0] else "The passage:")
    ((_, _, text),) = FENCE.findall(tail)
    before = {name: block for _, name, block in FENCE.findall(head)}
    if "claim" in rubric.splitlines()[0]:
        return "yes" if any(normalise(text) in normalise(block) for block in before.values()) else "no"
    return "yes" if normalise(before["question"]).split()[-1] in normalise(text) else "no"
