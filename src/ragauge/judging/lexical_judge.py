"""Lexical judge: supports, contradicts and rates by matching words, without a model."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from ragauge.core.samples import LEXICAL_JUDGE, Support, Unscored, Usefulness, is_chunk, remove_citations
from ragauge.core.text import split_sentences
from ragauge.judging.lexical_text import Word, extract_claims, parse_words
from ragauge.judging.tasks import JudgeTask, TaskResult

KNOWN_WORD_FACTOR = 0.5
"""Weight factor of words that already occur in the question or the conversation."""
ISOLATED_WORD_FACTOR = 0.85
"""Weight factor of words that the source never has in one sentence with a neighbour from the claim."""
FREE_WEIGHT = 1.0
"""Weight granted to every claim, so that one synonym does not decide a short claim."""
MIN_DENIED_SHARE = 0.8
"""Share of a claim that a sentence must contain before a negation in it contradicts the claim."""
NON_NEGATING_FOLLOWERS = frozenset({"only", "just", "necessari", "mer"})
"""Word stems after `not` that make it no negation."""
CONDITION_WORDS = frozenset({"if", "unless"})


@dataclass(frozen=True)
class SourceWords:
    """Words of a source text, indexed for matching."""

    sentences_by_word: Mapping[str, int]
    """Sentences that contain each word, as bits of an integer."""
    sentences: Sequence[Sequence[Word]]


def prepare_source(text: str) -> SourceWords:
    """Split a text into sentences and words, and index them."""
    sentences = [parse_words(sentence) for sentence in split_sentences(text)]
    where: dict[str, int] = {}
    for index, sentence in enumerate(sentences):
        for word in sentence:
            where[word.key] = where.get(word.key, 0) | 1 << index
    return SourceWords(where, sentences)


def join_sources(sources: Sequence[SourceWords]) -> SourceWords:
    if len(sources) == 1:
        return sources[0]
    where: dict[str, int] = {}
    sentences: list[Sequence[Word]] = []
    for source in sources:
        for key, bits in source.sentences_by_word.items():
            where[key] = where.get(key, 0) | bits << len(sentences)
        sentences.extend(source.sentences)
    return SourceWords(where, sentences)


def support_degree(claim: Sequence[Word], where: Mapping[str, int], known_keys: frozenset[str]) -> float:
    """Return the weighted share of a claim's words in a source, from 0 to 1.

    Words are weighted by kind (`KIND_WEIGHTS`): half if the conversation already has them, and a little less if the
    source has them only apart from their neighbours in the claim. `FREE_WEIGHT` is granted. These constants were
    chosen on labelled datasets, to order answers best on all of them. The degree is not a probability.

    >>> source = prepare_source("The museum opened in Paris.")
    >>> round(support_degree(parse_words("It opened in Paris in 1987."), source.sentences_by_word, frozenset()), 3)
    0.561
    """
    word_bits = [where.get(word.key, 0) for word in claim if word.is_content]
    total = matched = 0.0
    index = -1
    for word in claim:
        weight = word.weight * (KNOWN_WORD_FACTOR if word.key in known_keys else 1.0)
        total += weight
        sentence_bits = where.get(word.key, 0)
        if not word.is_content:
            matched += weight if sentence_bits else 0.0
            continue
        index += 1
        if sentence_bits:
            neighbours = word_bits[max(index - 1, 0) : index] + word_bits[index + 1 : index + 2]
            near_share = sum(1 for bits in neighbours if bits & sentence_bits) / len(neighbours) if neighbours else 1.0
            matched += weight * (ISOLATED_WORD_FACTOR + (1 - ISOLATED_WORD_FACTOR) * near_share)
    return (matched + FREE_WEIGHT) / (total + FREE_WEIGHT)


def is_contradicted(claim: Sequence[Word], source: SourceWords) -> bool:
    """Return whether a source contradicts a claim, judging by negations only.

    It does if every sentence with the words of an affirmative claim has a negation among or right before them, or if
    no such sentence has a negation and the claim is negated. Conditional claims are never contradicted, and at least
    one of the sentences must not be conditional. Claims of one or two words are too short to be contradicted.

    >>> is_contradicted(parse_words("The museum opened in Paris."),
    ...     prepare_source("The museum has not opened in Paris."))
    True
    """
    weights = {word.key: word.weight for word in claim if word.is_content}
    negative = _count_negations(claim) % 2 == 1
    if len(weights) < (2 if negative else 3) or any(word.key in CONDITION_WORDS for word in claim):
        return False
    min_weight, is_unconditional = MIN_DENIED_SHARE * sum(weights.values()), False
    for sentence in source.sentences:
        positions = [position for position, word in enumerate(sentence) if word.key in weights]
        if sum(weights[key] for key in {sentence[position].key for position in positions}) < min_weight:
            continue
        excerpt = sentence[max(positions[0] - 1, 0) : positions[-1] + 1]
        if negative and _count_negations(sentence) > 0:
            return False
        if not negative and (_count_negations(excerpt) % 2 == 0 or len(excerpt) > 2 * len(claim)):
            return False
        is_unconditional = is_unconditional or all(word.key not in CONDITION_WORDS for word in sentence)
    return is_unconditional


def _count_negations(words: Sequence[Word]) -> int:
    """Count the words that negate; `not only`, `No. 5` and an initial `No` do not."""
    return sum(
        word.is_negation and not (after and (after.key in NON_NEGATING_FOLLOWERS or after.kind == "number"))
        for position, (word, after) in enumerate(zip_longest(words, words[1:]))
        if word and (position or word.key != "no")
    )


def find_needed_sources(
    claim: Sequence[Word], sources: Mapping[str, SourceWords], known_keys: frozenset[str], min_degree: float
) -> list[str]:
    """Return the sources that support a claim only together.

    Chosen greedily, by the weight of the words that each adds. If the words are all present but too far apart, all
    sources are returned. Empty if even all sources are not enough.
    """
    chosen: list[str] = []
    where: dict[str, int] = {}
    while support_degree(claim, where, known_keys) < min_degree:
        remaining = [name for name in sources if name not in chosen]
        gains = {
            name: sum(
                word.weight for word in claim if word.key not in where and word.key in sources[name].sentences_by_word
            )
            for name in remaining
        }
        best = max(remaining, key=lambda name: gains[name], default=None)
        if best is None or not gains[best]:
            all_words = join_sources(list(sources.values())).sentences_by_word if sources else {}
            return list(sources) if support_degree(claim, all_words, known_keys) >= min_degree else []
        chosen.append(best)
        where = dict(join_sources([sources[name] for name in chosen]).sentences_by_word)
    return chosen


class PreparedTexts:
    def __init__(self, size: int = 4096) -> None:
        self.words = functools.lru_cache(maxsize=size)(parse_words)
        self.source = functools.lru_cache(maxsize=size)(prepare_source)
        self.together = functools.lru_cache(maxsize=size // 8)(self._join_texts)
        self.known = functools.lru_cache(maxsize=size // 8)(self._known_word_keys)

    def _join_texts(self, texts: tuple[str, ...]) -> SourceWords:
        return join_sources([self.source(text) for text in texts])

    def _known_word_keys(self, texts: tuple[str, ...]) -> frozenset[str]:
        return frozenset(word.key for text in texts for word in self.words(text))


MIN_SUPPORT_DEGREE = 0.7
"""Minimum degree at which a source supports a claim."""
MIN_USEFUL_DEGREE = 0.5
"""Minimum degree at which a chunk is useful."""
MAX_MISSING_WORDS_SHOWN = 6
"""Maximum number of missing words listed in a verdict."""
RULES_VERSION = "a43cbe9fdc3b"
"""Version of the rules, part of the judge's identity. Change it whenever a verdict changes, and only then."""
NO_QUESTIONS_REASON = "the lexical judge generates no questions, which needs a model (--chat)"


class LexicalJudge:
    """Judge that decides every task from the words of the texts."""

    name = LEXICAL_JUDGE

    def __init__(self) -> None:
        self._library = PreparedTexts()

    @property
    def identity(self) -> Mapping[str, Any]:
        """Everything that a verdict depends on."""
        return {"judge": self.name, "source": RULES_VERSION}

    async def answer(self, task: JudgeTask) -> TaskResult:
        """Return a verdict on every item; items without comparable words are unscored."""
        return self.judge_task(task)

    def judge_task(self, task: JudgeTask) -> TaskResult:
        """Return the verdicts synchronously."""
        methods = {"claims": self._extract_claims, "support": self._judge_support, "useful": self._judge_usefulness}
        if task.step == "questions":
            return TaskResult({}, dict.fromkeys(task.items, Unscored(NO_QUESTIONS_REASON)))
        result = TaskResult({}, {})
        for item in task.items:
            verdict = methods[task.step](task, item)
            if isinstance(verdict, Unscored):
                result.unscored[item] = verdict
            else:
                result.verdicts[item] = verdict
        return result

    def _extract_claims(self, task: JudgeTask, sentence: str) -> list[str]:
        return extract_claims(remove_citations(task.items[sentence]))

    def _judge_support(self, task: JudgeTask, name: str) -> Support | Unscored:
        claim = self._library.words(task.items[name])
        if all(word.kind == "stop" for word in claim):
            return Unscored("it has no words to compare")
        known_keys = self._library.known((task.question, *task.history))
        sources = {choice: self._library.source(task.sources[choice]) for choice in task.choices(name)}
        chunks = {source: sources[source] for source in sources if is_chunk(source)}
        everything = self._library.together(tuple(task.sources[chunk] for chunk in chunks)) if chunks else None
        content_keys = [word.key for word in claim if word.is_content]
        candidates = [
            source for source in sources if any(key in sources[source].sentences_by_word for key in content_keys)
        ]
        supporting = [
            source
            for source in candidates
            if support_degree(claim, sources[source].sentences_by_word, known_keys) >= MIN_SUPPORT_DEGREE
        ]
        degree = support_degree(claim, everything.sentences_by_word, known_keys) if everything else None
        joint: list[str] = []
        if degree is not None and degree >= MIN_SUPPORT_DEGREE and not any(source in chunks for source in supporting):
            joint = find_needed_sources(
                claim, {chunk: chunks[chunk] for chunk in chunks if chunk in candidates}, known_keys, MIN_SUPPORT_DEGREE
            )
        against = tuple(
            source for source in sources if source in (*supporting, *joint) and is_contradicted(claim, sources[source])
        )
        supporting = [source for source in sources if source in supporting and source not in against]
        together = (
            () if any(source in against for source in joint) else tuple(source for source in sources if source in joint)
        )
        if against and not together and not any(source in chunks for source in supporting) and degree is not None:
            degree = 1 - degree if any(source in chunks for source in against) else degree
        present = (
            everything.sentences_by_word
            if everything
            else {key: 1 for source_words in sources.values() for key in source_words.sentences_by_word}
        )
        return Support(
            tuple(supporting), against, _verdict_reason(claim, present, against, bool(chunks)), degree, together
        )

    def _judge_usefulness(self, task: JudgeTask, chunk: str) -> Usefulness | Unscored:
        question_words = [word for word in self._library.words(task.question) if word.is_content]
        if not question_words:
            return Unscored("the question has no words to compare")
        weights = {word.key: word.weight for word in question_words}
        source = self._library.source(task.items[chunk])
        best = max(
            (sum(weights.get(key, 0.0) for key in {w.key for w in sentence}) for sentence in source.sentences),
            default=0.0,
        )
        matched = sum(weight for key, weight in weights.items() if key in source.sentences_by_word)
        degree = (matched + best) / (2 * sum(weights.values()))
        return Usefulness(
            degree >= MIN_USEFUL_DEGREE,
            _missing_words_text("not in it", question_words, source.sentences_by_word),
            degree,
        )


def _verdict_reason(claim: Sequence[Word], have: Mapping[str, int], against: Sequence[str], contexts: bool) -> str:
    """Explain a verdict in one sentence."""
    if against:
        return f"{', '.join(against)}: the same words, but a negation on one side only"
    return _missing_words_text("not in any context" if contexts else "not in the source", claim, have)


def _missing_words_text(label: str, words: Sequence[Word], present: Mapping[str, int]) -> str:
    """List the words that were not found, by descending weight."""
    missing = sorted(
        (word for word in words if word.is_content and word.key not in present), key=lambda word: -word.weight
    )
    quoted = list(dict.fromkeys(f'"{word.text}"' for word in missing))
    return (
        f"{label}: {', '.join(quoted[:MAX_MISSING_WORDS_SHOWN])}{' …' if len(quoted) > MAX_MISSING_WORDS_SHOWN else ''}"
        if quoted
        else ""
    )
