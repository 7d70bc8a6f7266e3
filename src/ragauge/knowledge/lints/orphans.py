"""Check for judged documents that are not in the corpus."""

from __future__ import annotations

from collections.abc import Iterator

from ragauge.audits.repairs import repairs
from ragauge.audits.wording import counted
from ragauge.findings import Finding
from ragauge.knowledge.lints.evidence import EXAMPLES, Evidence, Judged, shown


def orphans(evidence: Evidence) -> Iterator[Finding]:
    """Find judgments of documents that are not in the corpus.

    A problem if one is relevant.
    """
    known = {name for name in evidence.reading.ids if name is not None}
    for judged in evidence.judged:
        yield _of(judged, known)


def _of(judged: Judged, known: set[str]) -> Finding:
    lost = [(query, doc, grade) for query, doc, grade in judged.rows if doc not in known]
    if not lost:
        said = f"all {counted(len(judged.rows), 'judgment')} are of documents in the corpus"
        return Finding(judged.source, "orphans", False, 0, said)
    relevant = sum(grade >= 1 for _, _, grade in lost)
    names = list(dict.fromkeys(doc for _, doc, _ in lost))
    found = repairs(names, known)
    said = f"no id of the corpus is nearly one of these {len(names):,}"
    matches: dict[str, str] = {}
    if found:
        matches = found[0].matches
        said = f"{len(matches):,} of these {counted(len(names), 'id')} differ only in {found[0].name}"
    first = [*matches, *(name for name in names if name not in matches)][:EXAMPLES]
    return Finding(
        judged.source,
        "orphans",
        relevant > 0,
        len(lost),
        f"{counted(len(lost), 'judgment')}, {relevant:,} of them relevant, of documents that are not in the corpus, in "
        f"{counted(len({query for query, _, _ in lost}), 'query')}; {said}",
        tuple(shown(f"{name} (perhaps {matches[name]})" if name in matches else name) for name in first),
        "nothing can return them, and they stay in the denominator of recall",
        remedy="mend the ids, or take these judgments out, and say so when you cite a score",
    )
