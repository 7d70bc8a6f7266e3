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


def plain(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower()))


def answer(messages: Any, schema: Any) -> str:
    """Return the reply to the messages that ragauge writes for any task of a judge."""
    user = messages[1]["content"]
    blocks = {name: text for _, name, text in FENCE.findall(user)}
    if schema is not None and "enum" in schema:
        return _word(messages[0]["content"], user)
    if "List the claims" in user:
        ids = re.findall(r"\bs\d+\b", user.rsplit("List the claims", 1)[1])
        claims = {one: [part.strip(" .") for part in blocks[one].split(" and ")] for one in ids}
        return json.dumps({"sentences": [{"id": one, "claims": claims[one]} for one in ids]})
    if "Check every one" in user:
        return json.dumps(_support(user, blocks))
    if "Judge every one" in user:
        ids = re.findall(r"\bk\d+\b", user.rsplit("Judge every one", 1)[1])
        last = plain(blocks["question"]).split()[-1]
        said = [{"id": one, "reason": f"looked for {last}", "useful": last in plain(blocks[one])} for one in ids]
        return json.dumps({"verdicts": said})
    n = int(re.search(r"Write (\d+) questions", user)[1])  # type: ignore[index]
    text = blocks["answer"].splitlines()[0]
    return json.dumps({"refusal": text.startswith("I do not know"), "questions": [text.rstrip(".") + "?"] * n})


def _support(user: str, blocks: dict[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, listed in re.findall(r"(of_\w+): ((?:\w+(?:, )?)+)", user.rsplit("Check every one", 1)[1]):
        own = name.removeprefix("of_")
        sources = [one for one in blocks if one not in (own, "history", "question") and not re.match(r"[ars]\d", one)]
        entries = []
        for claim in listed.split(", "):
            words = plain(blocks[claim])
            by = [one for one in sources if words in plain(blocks[one])]
            against = [one for one in sources if one not in by and words in plain(blocks[one]).replace(" not ", " ")]
            said = {"supported_by": by, "supported_together": [], "contradicted_by": against}
            entries.append({"id": claim, "reason": "read", **said})
        found[name] = entries
    return found


def _word(rubric: str, user: str) -> str:
    head, _, tail = user.rpartition("The claim:" if "claim" in rubric.splitlines()[0] else "The passage:")
    ((_, _, text),) = FENCE.findall(tail)
    before = {name: block for _, name, block in FENCE.findall(head)}
    if "claim" in rubric.splitlines()[0]:
        return "yes" if any(plain(text) in plain(block) for block in before.values()) else "no"
    return "yes" if plain(before["question"]).split()[-1] in plain(text) else "no"
