"""Registry and execution of the corpus checks.

To add a check, write its function and a row here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from ragauge.core.errors import MissingEvidence, MissingExtra, UnknownName
from ragauge.core.findings import Finding
from ragauge.knowledge.lint import checks_characters, checks_entries, checks_texts
from ragauge.knowledge.lint.evidence import Evidence

NEEDS: Mapping[str, tuple[Callable[[Evidence], bool], str]] = {
    "documents": (lambda found: len(found.reading) > 0, "there is no document"),
    "an embedder": (
        lambda found: found.tokens is not None,
        "no embedder is named: --embedder minilm, or --tokenizer FILE --limit N",
    ),
    "judgments": (lambda found: bool(found.judged), "no judgments are given: --qrels"),
}
"""Evidence that a check may need: a test for it, and the reason shown if it is missing."""


@dataclass(frozen=True)
class Check:
    """Corpus check: its name, description, function and required evidence."""

    name: str
    about: str
    look: Callable[[Evidence], Iterator[Finding]]
    """Function that yields findings. Its docstring says what is a problem."""
    needs: tuple[str, ...] = ("documents",)


CHECKS: Mapping[str, Check] = {
    check.name: check
    for check in (
        Check("readable", "lines that hold no document", checks_entries.readable, ()),
        Check("encoding", "bytes that are no UTF-8", checks_entries.encoding, ()),
        Check("ids", "ids that are missing, come twice, or have blanks", checks_entries.ids),
        Check("empty", "documents without a text", checks_entries.empty),
        Check("tiny", "texts too short to say anything", checks_texts.tiny),
        Check("giant", "texts too long for one vector", checks_texts.giant),
        Check("tokens", "texts longer than the embedder reads", checks_texts.tokens, ("documents", "an embedder")),
        Check("duplicates", "documents with the same text", checks_texts.duplicates),
        Check("near-duplicates", "documents with nearly the same text", checks_texts.near_duplicates),
        Check("characters", "control, invisible, replacement characters", checks_characters.characters),
        Check("mojibake", "texts decoded with the wrong encoding", checks_characters.mojibake),
        Check("markup", "remains of HTML", checks_characters.markup),
        Check("boilerplate", "lines that stand in many documents", checks_characters.boilerplate),
        Check("language", "documents in another language", checks_texts.language),
        Check(
            "orphans", "judgments of documents that are not there", checks_entries.orphans, ("documents", "judgments")
        ),
    )
}


def find(names: Iterable[str] | None) -> list[Check]:
    """Return the named checks in registry order, or all.

    Raise UnknownName for an unknown one.
    """
    wanted = {name.strip().lower().replace("_", "-") for name in names or CHECKS}
    for name in wanted:
        if name not in CHECKS:
            raise UnknownName("check", name, CHECKS, hint=f"there are {', '.join(CHECKS)}")
    return [check for name, check in CHECKS.items() if name in wanted]


@dataclass(frozen=True)
class Looked:
    """Findings, skipped checks with reasons, and seconds by check."""

    findings: list[Finding]
    skipped: dict[str, str]
    seconds: dict[str, float]


def look(evidence: Evidence, checks: Iterable[Check], tell: Callable[[str], None], absent: Mapping[str, str]) -> Looked:
    """Run the checks; those that cannot be run are listed with the reason.

    Reasons in `absent` take precedence over the default ones.
    """
    looked = Looked([], {}, {})
    for check in checks:
        lacking = [one for one in check.needs if not NEEDS[one][0](evidence)]
        if lacking:
            looked.skipped[check.name] = "; ".join(absent.get(one) or NEEDS[one][1] for one in lacking)
            continue
        tell(check.name)
        began = time.perf_counter()
        try:
            looked.findings.extend(one if one.problem else replace(one, remedy="") for one in check.look(evidence))
        except (MissingEvidence, MissingExtra) as error:
            looked.skipped[check.name] = error.message + (f": {error.hint}" if error.hint else "")
            continue
        looked.seconds[check.name] = time.perf_counter() - began
    return looked
