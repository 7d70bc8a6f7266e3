"""Notes on results, and the result types of audits: findings about data and runs, and their effect on scores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ragauge.core.record_types import TabularResult, json_form, record
from ragauge.core.text import join_names

EXPECTED_FINDING = "expected"
"""Name of findings on expected scores."""
LEAK_FINDINGS = ("leaking field", "leaking score")
"""Problems that make scores unusable: the relevant documents can be found without the query."""


class Note(str):
    """A sentence about a result. It is printed with its subject in front, if there is one.

    >>> note = Note("returned no documents for 3 of 50 queries", "bm25")
    >>> note, note.subjects
    ('bm25: returned no documents for 3 of 50 queries', ('bm25',))
    """

    subjects: tuple[str, ...]
    """Names of the runs or systems that it is about; empty if it is about all."""
    text: str
    """The sentence without the subject."""
    code: str
    """What the note says, for programs; empty if no code depends on it."""

    def __new__(cls, text: str, *subjects: str, code: str = "") -> Note:
        """Create a note from its sentence; it names the first few subjects and how many more there are."""
        note = super().__new__(cls, f"{join_names(subjects)}: {text}" if subjects else text)
        note.subjects, note.text, note.code = subjects, text, code
        return note

    def __getnewargs_ex__(self) -> tuple[tuple[str, ...], dict[str, str]]:
        """Return the arguments that copy the note."""
        return (self.text, *self.subjects), {"code": self.code}


def has_code(note: str, code: str) -> bool:
    return isinstance(note, Note) and note.code == code


def merge_notes(notes: Iterable[str]) -> list[str]:
    """Merge notes that differ only in their subject, and drop duplicates.

    >>> merge_notes([Note("slow", "a"), Note("slow", "b"), "done", "done"])
    ['a, b: slow', 'done']
    """
    subjects: dict[tuple[str, str], dict[str, None]] = {}
    for note in notes:
        complete_note = note if isinstance(note, Note) else Note(note)
        key = complete_note.text, complete_note.code
        subjects.setdefault(key, {}).update(dict.fromkeys(complete_note.subjects))
    return [Note(text, *names, code=code) for (text, code), names in subjects.items()]


def append_notes(text: str, notes: Iterable[str]) -> str:
    """Append the notes of a result to its text, one per line, except those that the text has.

    >>> print(append_notes("bm25: 3 of 50 queries failed", [Note("3 of 50 queries failed", "bm25"), "2 ties"]))
    bm25: 3 of 50 queries failed
    note: 2 ties
    """
    new_notes = [note for note in notes if (note.text if isinstance(note, Note) else note) not in text]
    return "\n".join([text, *(f"note: {note}" for note in new_notes)])


@json_form(optional=["styles"])
class FindingTable(NamedTuple):
    """A small table; a cell is a text, a number, or None if empty."""

    header: Sequence[str]
    rows: Sequence[Sequence[str | float | None]]
    styles: Sequence[str] = ()
    """Style of each column, as in `ragauge.output.tables.Column`; empty to infer it from the values."""


@dataclass(frozen=True)
class Finding:
    """One result of a check of data or runs."""

    subject: str
    """File or run that the finding is about."""
    check: str
    """Short name of the check."""
    problem: bool
    """Whether it should be fixed; otherwise it is only descriptive."""
    count: int
    """Number of rows, documents or queries concerned."""
    message: str
    """One sentence."""
    examples: Sequence[str] = field(default=())
    effect: str = ""
    """Effect on the score in one sentence with numbers; empty if there is none or if it is unknown."""
    table: FindingTable | None = None
    """Evidence as a table, if it has more than one number."""
    remedy: str = ""
    """What to do about it, in the imperative; every problem that an audit finds has one."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """Values for programs, such as `{"unjudged": 0.73}` or `{"ranked_by": ["bm25"]}`."""


@record("ragauge-audit", 1, derived=("problem_count",))
@dataclass(frozen=True, eq=False)
class Audit(TabularResult, report="ragauge.audits.report"):
    """All findings of an audit, and the checks that were skipped."""

    findings: Sequence[Finding]
    skipped: Mapping[str, str] = field(default_factory=dict)
    """`{check: reason}` of checks that were not run. What a skipped check would find is unknown."""
    notes: Sequence[str] = ()
    """What was checked, and with which convention."""
    runs: Sequence[str] = ()
    """Names of the runs that were checked."""

    @property
    def problems(self) -> list[Finding]:
        """Findings that should be fixed."""
        return [finding for finding in self.findings if finding.problem]

    @property
    def problem_count(self) -> int:
        """Number of problems."""
        return len(self.problems)
