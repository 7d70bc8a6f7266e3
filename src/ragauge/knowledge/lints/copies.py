"""Checks of texts: duplicates, near-duplicates, language and length."""

from __future__ import annotations

from collections.abc import Iterator

from ragauge import twins
from ragauge.audits.wording import counted
from ragauge.findings import Finding
from ragauge.knowledge.lints.evidence import Evidence, part, shown

GROUPS = 4
"""Maximum number of duplicate groups shown."""


def duplicates(evidence: Evidence) -> Iterator[Finding]:
    """Find documents with equal text.

    Case, compatibility forms and white space are ignored. A problem if the redundant ones are at least `share` of all.
    """
    groups, _ = evidence.copies
    total = len(evidence.reading)
    if not groups:
        yield Finding(evidence.reading.name, "duplicates", False, 0, "no two documents have the same text")
        return
    more = sum(map(len, groups)) - len(groups)
    yield Finding(
        evidence.reading.name,
        "duplicates",
        evidence.many(more),
        more,
        f"{more:,} of {counted(total, 'document')} ({part(more, total)}) repeat the text of another, "
        f"in {counted(len(groups), 'group')}",
        tuple(_named(evidence, group, "=") for group in groups[:GROUPS]),
        f"{counted(more, 'vector')} paid for twice; in a ranking they stand beside each other, and push others out",
        remedy="keep one document of each text",
    )


def near_duplicates(evidence: Evidence) -> Iterator[Finding]:
    """Find documents that share at least `near` of their 3-word shingles with another.

    Exact duplicates are not reported again. A problem if the redundant ones are at least five times `share` of all,
    because similar texts may still differ in content.
    """
    groups, empty = evidence.copies
    total, near = len(evidence.reading), evidence.thresholds.near
    told = {place for group in groups for place in group[1:]} | set(empty)
    left = [place for place in range(total) if place not in told]
    found = twins.alike([evidence.reading.texts[place] for place in left], near, evidence.progress)
    rule = f"Jaccard {near:g} or more of three-word stretches"
    if not found:
        said = f"no two documents are nearly the same ({rule})"
        yield Finding(evidence.reading.name, "near duplicates", False, 0, said)
        return
    found.sort(key=lambda one: (-len(one.group), -one.part))
    more = sum(len(one.group) - 1 for one in found)
    yield Finding(
        evidence.reading.name,
        "near duplicates",
        more >= 5 * evidence.thresholds.share * total,
        more,
        f"{more:,} of {counted(total, 'document')} ({part(more, total)}) are nearly another ({rule}), "
        f"in {counted(len(found), 'group')}",
        tuple(f"{_named(evidence, [left[i] for i in one.group], '~')} at {one.part:.2f}" for one in found[:GROUPS]),
        "they crowd each other in rankings; where they contradict, an answer may cite the outdated one",
        remedy="keep the latest of each group, or mark which of them is in force",
    )


def _named(evidence: Evidence, group: list[int], sign: str) -> str:
    names = [evidence.reading.ids[i] or evidence.reading.places[i] for i in group[:3]]
    more = f" {sign} {len(group) - 3:,} more" if len(group) > 3 else ""
    return shown(f" {sign} ".join(names)) + more
