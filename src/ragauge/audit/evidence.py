"""What an audit looks at: judgments, runs, and texts where they are known; and scoring them again, otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ragauge.measures.conventions import Convention
from ragauge.measures.from_frames import judged_ranks
from ragauge.measures.judged import JudgedRanks
from ragauge.measures.names import Measure
from ragauge.measures.scoring import score
from ragauge.records import Document, Judgments, Retrieved, Run, Scores


@dataclass(frozen=True, eq=False)
class Evidence:
    """Everything that is known; a check that needs what is None is skipped and says so."""

    judgments: Judgments
    runs: Mapping[str, Run]
    measures: Sequence[Measure]
    rules: Convention
    documents: Sequence[Document] | None = None
    queries: Mapping[str, str] | None = None
    repeats: Mapping[str, Sequence[Run]] = field(default_factory=dict)
    """Further runs of the same system over the same queries, by the system's name."""

    def judged(
        self,
        run: str | Retrieved,
        *,
        rules: Convention | None = None,
        judgments: Judgments | None = None,
        top: int = 0,
    ) -> JudgedRanks:
        """The judged ranks of a run, by name or given, under other rules or other judgments if so."""
        chosen = self.runs[run] if isinstance(run, str) else run
        found = judged_ranks(judgments or self.judgments, chosen, rules or self.rules, top=top)
        return replace(found, name=run) if isinstance(run, str) else found

    def scores(
        self,
        run: str | Retrieved,
        *,
        rules: Convention | None = None,
        judgments: Judgments | None = None,
        measures: Sequence[Measure] | None = None,
    ) -> Scores:
        """The run's scores, counted again."""
        chosen = rules or self.rules
        return score(self.judged(run, rules=chosen, judgments=judgments), measures or self.measures, chosen)
