"""Validate samples before they are judged."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence

from ragauge.errors import BadInput
from ragauge.findings import Finding
from ragauge.formats.files import Source
from ragauge.formats.sample_rows import PARTS, names_of, not_read
from ragauge.formats.samples import read_samples
from ragauge.verdicts import Sample, cited


def validate(path: str) -> list[Finding]:
    """Find all problems of a file of samples."""
    try:
        samples = read_samples(path)
    except BadInput as error:
        return [Finding(path, "unreadable", True, 1, error.message)]
    return list(findings(Source(path).label, samples))


def findings(subject: str, samples: Sequence[Sample]) -> Iterator[Finding]:
    """Yield findings on samples.

    Findings report the available fields, and problems that prevent or distort scoring.
    """
    n = len(samples)
    given = {
        "questions": sum(bool(one.question.strip()) for one in samples),
        "answers": sum(one.answer is not None for one in samples),
        "contexts": sum(one.contexts is not None for one in samples),
        "references": sum(one.reference is not None for one in samples),
    }
    held = ", ".join(f"{what}: {count}" for what, count in given.items())
    yield Finding(subject, "samples", False, n, f"samples: {n}, {held}")
    retrieved = [len(one.contexts) for one in samples if one.contexts is not None]
    if retrieved:
        words = [len(text.split()) for one in samples for text in one.contexts or ()]
        each = f", words in a context: {_spread(words)}" if words else ""
        yield Finding(subject, "contexts", False, sum(retrieved), f"contexts a sample: {_spread(retrieved)}{each}")
    unread = not_read(samples)
    if unread:
        told = ", ".join(name if count == n else f"{name} ({count})" for name, count in unread.items())
        fields = dict(zip(given, PARTS, strict=True))
        absent = [names_of(fields[what]) for what, count in given.items() if not count]
        message = "; ".join([f"fields that are not read, but kept as metadata: {told}", *absent])
        yield Finding(subject, "unread fields", bool(absent), len(unread), message)
    labels = Counter(name for one in samples for name in one.labels)
    if labels:
        said = ", ".join(f"{name} {count}" for name, count in labels.items())
        yield Finding(subject, "labels", False, sum(labels.values()), f"labels: {said}")
    for what, count in given.items():
        if 0 < count < n:
            lacking = [one for one in samples if not _has(one, what)]
            yield _problem(subject, f"without {what}", lacking, f"samples without {what}, where others have them")
    twice = Counter((one.question, one.answer, one.contexts, one.history) for one in samples)
    odd = {
        "empty answers": (
            [one for one in samples if one.answer is not None and not one.answer.strip()],
            "empty answers",
        ),
        "empty contexts": ([one for one in samples if one.contexts == ()], "samples with an empty list of contexts"),
        "blank contexts": (
            [one for one in samples if any(not text.strip() for text in one.contexts or ())],
            "samples with a blank chunk among the contexts",
        ),
        "repeated contexts": (
            [one for one in samples if len(set(one.contexts or ())) < len(one.contexts or ())],
            "samples with the same chunk twice among the contexts",
        ),
        "repeated samples": (
            [one for one in samples if twice[one.question, one.answer, one.contexts, one.history] > 1],
            "samples that are the same as another",
        ),
        "dangling citations": (
            [one for one in samples if _dangling(one)],
            "answers that cite a chunk that is not there",
        ),
    }
    for name, (found, message) in odd.items():
        if found:
            yield _problem(subject, name, found, message)
    copied = [one for one in samples if one.answer is not None and one.answer == one.reference]
    if copied:
        yield Finding(
            subject,
            "answers that are references",
            False,
            len(copied),
            f"answers that are their reference: {len(copied)}",
        )


def _has(sample: Sample, what: str) -> bool:
    if what == "questions":
        return bool(sample.question.strip())
    value = {"answers": sample.answer, "contexts": sample.contexts, "references": sample.reference}[what]
    return value is not None


def _dangling(sample: Sample) -> bool:
    places = cited(sample.answer or "")
    return sample.contexts is not None and bool(places) and max(places) > len(sample.contexts)


def _problem(subject: str, what: str, found: Sequence[Sample], message: str) -> Finding:
    return Finding(subject, what, True, len(found), f"{message}: {len(found)}", [one.id for one in found[:5]])


def _spread(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low} to {high} (median {statistics.median(counts):g})"
