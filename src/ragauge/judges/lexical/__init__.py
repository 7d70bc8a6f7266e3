"""A judge that compares words: deterministic, offline and free, but without understanding.

It is the default and the baseline that a model has to beat, not a substitute for one: a free paraphrase looks
unsupported to it, and a false sentence made of the right words looks supported.

- **claims**: the phrases of each sentence; clauses that refuse, ask or are polite contain no claim.
- **support**: a source supports a claim if it has enough of its words (`support_degree`) and no negation on one side
  only. If no context has enough alone but all together have, the contexts needed together are named.
- **useful**: the share of the question's words that a chunk has, as a whole and in its best sentence.
- **questions**: unscored, because generating the questions that an answer would answer needs a model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ragauge.judges.lexical.matching import Library, degree, denies, needed
from ragauge.judges.lexical.phrases import claims
from ragauge.judges.lexical.words import Word
from ragauge.judges.tasks import CONTEXTS, Reading, Task
from ragauge.verdicts import LEXICAL, Support, Unscored, Usefulness, uncited

ENOUGH = 0.7
"""Minimum degree at which a source supports a claim."""
HELPS = 0.5
"""Minimum degree at which a chunk is useful."""
SHOWN = 6
"""Maximum number of missing words listed in a verdict."""
RULES_VERSION = "a43cbe9fdc3b"
"""Version of the rules, part of the judge's identity. Change it whenever a verdict changes, and only then."""
NO_QUESTIONS = "the lexical judge generates no questions, which needs a model (--chat)"


class Lexical:
    """Judge that decides every task from the words of the texts."""

    name = LEXICAL

    def __init__(self) -> None:
        self._library = Library()

    @property
    def identity(self) -> Mapping[str, Any]:
        """Everything that a verdict depends on."""
        return {"judge": self.name, "source": RULES_VERSION}

    async def answer(self, task: Task) -> Reading:
        """Return a verdict on every item; items without comparable words are unscored."""
        return self.say(task)

    def say(self, task: Task) -> Reading:
        """Return the verdicts synchronously."""
        says = {"claims": self._claims, "support": self._support, "useful": self._useful}
        if task.step == "questions":
            return Reading({}, dict.fromkeys(task.asked, Unscored(NO_QUESTIONS)))
        reading = Reading({}, {})
        for one in task.asked:
            said = says[task.step](task, one)
            if isinstance(said, Unscored):
                reading.unscored[one] = said
            else:
                reading.said[one] = said
        return reading

    def _claims(self, task: Task, sentence: str) -> list[str]:
        return claims(uncited(task.asked[sentence]))

    def _support(self, task: Task, name: str) -> Support | Unscored:
        claim = self._library.words(task.asked[name])
        if all(word.kind == "stop" for word in claim):
            return Unscored("it has no words that could be looked for")
        known = self._library.known((task.question, *task.history))
        sources = {one: self._library.source(task.sources[one]) for one in task.choices(name)}
        chunks = {one: sources[one] for one in sources if one.startswith(CONTEXTS)}
        everything = self._library.together(tuple(task.sources[one] for one in chunks)) if chunks else None
        telling = [word.key for word in claim if word.tells]
        having = [one for one in sources if any(key in sources[one].where for key in telling)]
        by = [one for one in having if degree(claim, sources[one].where, known) >= ENOUGH]
        whole = degree(claim, everything.where, known) if everything else None
        joint: list[str] = []
        if whole is not None and whole >= ENOUGH and not any(one in chunks for one in by):
            joint = needed(claim, {one: chunks[one] for one in chunks if one in having}, known, ENOUGH)
        against = tuple(one for one in sources if one in (*by, *joint) and denies(claim, sources[one]))
        by = [one for one in sources if one in by and one not in against]
        together = () if any(one in against for one in joint) else tuple(one for one in sources if one in joint)
        if against and not together and not any(one in chunks for one in by) and whole is not None:
            whole = 1 - whole if any(one in chunks for one in against) else whole
        have = everything.where if everything else {key: 1 for one in sources.values() for key in one.where}
        return Support(tuple(by), against, _words(claim, have, against, bool(chunks)), whole, together)

    def _useful(self, task: Task, chunk: str) -> Usefulness | Unscored:
        asked = [word for word in self._library.words(task.question) if word.tells]
        if not asked:
            return Unscored("the question has no words that could be looked for")
        wanted = {word.key: word.weight for word in asked}
        source = self._library.source(task.asked[chunk])
        best = max((sum(wanted.get(key, 0.0) for key in {w.key for w in one}) for one in source.sentences), default=0.0)
        whole = sum(weight for key, weight in wanted.items() if key in source.where)
        found = (whole + best) / (2 * sum(wanted.values()))
        return Usefulness(found >= HELPS, _missing("not in it", asked, source.where), found)


def _words(claim: Sequence[Word], have: Mapping[str, int], against: Sequence[str], contexts: bool) -> str:
    """Explain a verdict in one sentence."""
    if against:
        return f"{', '.join(against)}: the same words, but a negation on one side only"
    return _missing("not in any context" if contexts else "not in the source", claim, have)


def _missing(where: str, wanted: Sequence[Word], have: Mapping[str, int]) -> str:
    """List the words that were not found, by descending weight."""
    lacking = sorted((word for word in wanted if word.tells and word.key not in have), key=lambda word: -word.weight)
    shown = list(dict.fromkeys(f'"{word.text}"' for word in lacking))
    return f"{where}: {', '.join(shown[:SHOWN])}{' …' if len(shown) > SHOWN else ''}" if shown else ""
