"""Registry and execution of the corpus checks.

To add a check, write its function and a row here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from ragauge.compute.progress import Progress, ProgressCallback
from ragauge.core.errors import MissingEvidence, MissingExtra, UnknownName
from ragauge.core.findings import Finding
from ragauge.knowledge.lint import checks_characters, checks_entries, checks_texts
from ragauge.knowledge.lint.evidence import Evidence

EVIDENCE_REQUIREMENTS: Mapping[str, tuple[Callable[[Evidence], bool], str]] = {
    "documents": (lambda found: len(found.reading) > 0, "the corpus has no documents"),
    "an embedder": (
        lambda found: found.tokens is not None,
        "no embedder given; add --embedder minilm, or --tokenizer FILE --token-limit N",
    ),
    "judgments": (lambda found: bool(found.judged), "no judgments given; add --qrels FILE"),
}
"""Evidence that a check may need: a test for it, and the reason shown if it is missing."""


@dataclass(frozen=True)
class LintCheck:
    """Corpus check: its name, description, function and required evidence."""

    name: str
    about: str
    look: Callable[[Evidence], Iterator[Finding]]
    """Function that yields findings. Its docstring says what is a problem."""
    needs: tuple[str, ...] = ("documents",)


LINT_CHECKS: Mapping[str, LintCheck] = {
    check.name: check
    for check in (
        LintCheck("readable", "entries that cannot be read", checks_entries.check_readable, ()),
        LintCheck("encoding", "bytes that are not UTF-8", checks_entries.check_encoding, ()),
        LintCheck("ids", "missing ids, duplicate ids, ids with white space", checks_entries.check_ids),
        LintCheck("empty", "documents without text", checks_entries.check_empty),
        LintCheck("tiny", "very short texts", checks_texts.check_tiny),
        LintCheck("giant", "very long texts", checks_texts.check_giant),
        LintCheck(
            "tokens",
            "texts longer than the embedder's token limit",
            checks_texts.check_tokens,
            ("documents", "an embedder"),
        ),
        LintCheck("duplicates", "documents with the same text", checks_texts.check_duplicates),
        LintCheck("near-duplicates", "documents with nearly the same text", checks_texts.check_near_duplicates),
        LintCheck("characters", "control, invisible and replacement characters", checks_characters.check_characters),
        LintCheck("mojibake", "texts decoded with the wrong encoding", checks_characters.check_mojibake),
        LintCheck("markup", "HTML tags and entities", checks_characters.check_markup),
        LintCheck("boilerplate", "lines that are repeated in many documents", checks_characters.check_boilerplate),
        LintCheck("language", "documents in another language", checks_texts.check_language),
        LintCheck(
            "orphans",
            "judgments of documents that are not in the corpus",
            checks_entries.check_orphans,
            ("documents", "judgments"),
        ),
    )
}


def find_checks(names: Iterable[str] | None) -> list[LintCheck]:
    """Return the named checks in registry order, or all.

    Raise UnknownName for an unknown one.
    """
    wanted = {name.strip().lower().replace("_", "-") for name in names or LINT_CHECKS}
    for name in wanted:
        if name not in LINT_CHECKS:
            raise UnknownName("check", name, LINT_CHECKS, hint=f"choose one of {', '.join(LINT_CHECKS)}")
    return [check for name, check in LINT_CHECKS.items() if name in wanted]


@dataclass(frozen=True)
class CheckResults:
    """Findings, skipped checks with reasons, and seconds by check."""

    findings: list[Finding]
    skipped: dict[str, str]
    seconds: dict[str, float]


def run_checks(
    evidence: Evidence, checks: Iterable[LintCheck], progress: ProgressCallback, absent: Mapping[str, str]
) -> CheckResults:
    """Run the checks; those that cannot be run are listed with the reason.

    Reasons in `absent` take precedence over the default ones.
    """
    looked = CheckResults([], {}, {})
    for check in checks:
        lacking = [one for one in check.needs if not EVIDENCE_REQUIREMENTS[one][0](evidence)]
        if lacking:
            looked.skipped[check.name] = "; ".join(absent.get(one) or EVIDENCE_REQUIREMENTS[one][1] for one in lacking)
            continue
        progress(Progress(check.name))
        began = time.perf_counter()
        try:
            looked.findings.extend(one if one.problem else replace(one, remedy="") for one in check.look(evidence))
        except (MissingEvidence, MissingExtra) as error:
            looked.skipped[check.name] = error.message + (f": {error.hint}" if error.hint else "")
            continue
        looked.seconds[check.name] = time.perf_counter() - began
    return looked
