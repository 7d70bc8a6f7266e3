"""Audit of judgments, runs and texts: checks for flaws that make a score misleading.

`audit` takes Python objects or paths, `audit_files` the arguments of the command line.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypedDict, Unpack

from ragauge.audits.audit_input import AuditInput
from ragauge.audits.checks import AUDIT_CHECKS, run_audit_checks
from ragauge.core.errors import BadInput, MissingEvidence
from ragauge.core.findings import Audit, has_code, merge_notes
from ragauge.core.protocols import Embedder
from ragauge.core.records import Judgments, Run
from ragauge.core.settings import check_keywords
from ragauge.evaluation.checks import select_checks
from ragauge.evaluation.evaluate import (
    DEFAULT_MEASURES,
    DIFFERING_TRIALS,
    Measures,
    judgments_for_measures,
    parse_measures,
    with_target_map,
)
from ragauge.measures.conventions import PRESETS, Convention, find_convention
from ragauge.measures.judged_ranks import defined_depth
from ragauge.measures.names import Measure
from ragauge.measures.scoring import NO_RELEVANT_DOCUMENTS, UNJUDGED_QUERIES, is_beyond_depth
from ragauge.output.numbers import pluralise
from ragauge.runs.input_kinds import is_corpus_alone
from ragauge.runs.inputs import Inputs, open_run
from ragauge.runs.results import Experiment
from ragauge.runs.texts import DocumentTexts, load_texts

ExpectedScores = Mapping[str, str | float] | Iterable[str]


class AuditOptions(TypedDict, total=False):
    measures: Measures | None
    convention: str | Convention | None
    expect: ExpectedScores | None
    """Published scores by measure, or texts such as `ndcg@10=0.7439`."""
    checks: str | Iterable[str] | None
    """Names of checks; None for all."""
    targets: Any
    """Map from documents to targets, for dr@k."""
    embedder: str | Embedder | None
    """Embedder whose token limit the documents are compared with."""


def audit(
    qrels: Any = None,
    runs: Any = None,
    *,
    documents: Any = None,
    queries: Any = None,
    repeats: Mapping[str, Sequence[Any]] | None = None,
    **options: Unpack[AuditOptions],
) -> Audit:
    """Check judgments, runs and texts for flaws that make a score misleading.

    `qrels` and `runs` are judgments and one run, or several runs by name. `qrels` may also be a Dataset or a dataset
    folder, which include their texts. Without `runs`, it may be an Experiment or a folder written by `run`, which
    include runs, repeats and measures too, or a corpus. Without judgments, only the documents are checked. `documents`
    is a sequence of Document, a Dataset or a path. `queries` is
    a mapping from ids to texts, or a path. `expect` maps measures to published scores that are to be explained, e.g.
    `{"ndcg@10": "0.7439"}`; pass a string to keep trailing zeros. `repeats` are further runs of the same systems.
    `checks` selects checks by name; None runs all of them.

    >>> found = audit({"q1": {"a": 1}}, {"q1": {"a": 1.0, "b": 1.0}}, checks=["ties"])
    >>> [(one.check, one.problem, one.effect) for one in found.problems]
    [('ties', True, 'ndcg@10 0.6309 to 1.0000')]
    """
    check_keywords("audit", options, AuditOptions)
    if qrels is None and runs is not None:
        raise BadInput("an audit of runs requires judgments", hint="use `ragauge.audit(qrels, runs)`")
    values = [value for value in (qrels, runs) if value is not None]
    sources = _open_sources(values, {"documents": documents, "queries": queries})
    repeat_runs = {
        name: [open_run(source, name, with_ranks=True) for source in more] for name, more in (repeats or {}).items()
    }
    return _run_audit(
        _merge_settings(sources, options), sources.runs, {**sources.repeats, **repeat_runs}, sources.texts
    )


def audit_files(
    arguments: Sequence[str],
    *,
    corpus: str | None = None,
    queries: str | None = None,
    dataset: str | None = None,
    qrels_format: str | None = None,
    split: str | None = None,
    **options: Unpack[AuditOptions],
) -> Audit:
    """Audit command-line arguments: `QRELS RUN…`, or folders written by `run`.

    Several files of one name are repeats of one system. Judgments without runs, a dataset, or a corpus can be audited
    too.
    """
    sources = _open_sources(arguments, {"documents": corpus, "queries": queries, "dataset": dataset}, split)
    settings = replace(_merge_settings(sources, options), form=qrels_format, split=split)
    return _run_audit(settings, sources.runs, sources.repeats, sources.texts)


class _AuditSources(NamedTuple):
    """Inputs of an audit, with the measures and the convention that they bring."""

    qrels: Any
    """None if only a corpus is given."""
    runs: Mapping[str, Run]
    repeats: Mapping[str, Sequence[Run]]
    texts: DocumentTexts
    measures: Measures = DEFAULT_MEASURES
    convention: str | Convention = "default"


def find_corpus_alone(arguments: Sequence[Any], documents: Any = None) -> Any:
    """Return the corpus if there are no judgments: the only argument, or `documents`; else None."""
    if not arguments:
        return documents
    is_corpus = len(arguments) == 1 and documents is None and is_corpus_alone(arguments[0])
    return arguments[0] if is_corpus else None


def _open_sources(values: Sequence[Any], named: Mapping[str, Any], split: str | None = None) -> _AuditSources:
    corpus = find_corpus_alone(values, named["documents"])
    if corpus is not None:
        texts = load_texts(None, corpus, named["queries"], split)
        if not texts.documents:
            raise BadInput("no documents to audit", hint="check the path and the file format")
        return _AuditSources(None, {}, {}, texts)
    if not values:
        raise BadInput(
            "no input given; expected QRELS and runs, a run folder, or a corpus",
            hint="use `ragauge audit qrels.txt bm25.run` or `ragauge audit corpus.jsonl`",
        )
    inputs = Inputs.resolve(*values, named=named, split=split, runs_required=False)
    opened = inputs.open_runs(with_ranks=True)
    judgments_source = inputs.named_inputs["judgments"]
    convention = (
        next(iter(judgments_source.scores.values())).convention
        if isinstance(judgments_source, Experiment)
        else "default"
    )
    return _AuditSources(
        inputs.qrels,
        {name: runs[0] for name, runs in opened.items()},
        {name: runs[1:] for name, runs in opened.items()},
        inputs.texts(opened),
        inputs.measures or DEFAULT_MEASURES,
        PRESETS.get(convention, "default"),
    )


@dataclass(frozen=True)
class _AuditSettings:
    qrels: Any
    measures: Measures
    convention: str | Convention
    expect: ExpectedScores | None
    checks: str | Iterable[str] | None
    targets: Any = None
    embedder: str | Embedder | None = None
    form: str | None = None
    split: str | None = None


def _merge_settings(sources: _AuditSources, options: AuditOptions) -> _AuditSettings:
    """Merge options with the measures and the convention of the inputs."""
    return _AuditSettings(
        sources.qrels,
        options.get("measures") or sources.measures,
        options.get("convention") or sources.convention,
        options.get("expect"),
        options.get("checks"),
        options.get("targets"),
        options.get("embedder"),
    )


def _run_audit(
    question: _AuditSettings, runs: Mapping[str, Run], repeats: Mapping[str, Sequence[Run]], texts: DocumentTexts
) -> Audit:
    chosen = select_checks(AUDIT_CHECKS, question.checks)
    convention = with_target_map(find_convention(question.convention), question.qrels, question.targets)
    measures: list[Measure] = []
    for measure in parse_measures(question.measures, convention):
        if not isinstance(measure, Measure):
            raise BadInput("cannot audit a measure that is a function", hint="use measures with names: ndcg@10, map, …")
        measures.append(measure)
    depths = map(defined_depth, runs.values()) if convention.beyond_depth == "undefined" else ()
    limits = [depth for depth in depths if depth is not None]
    undefined = [measure for measure in measures if limits and is_beyond_depth(measure, min(limits))]
    measures = [measure for measure in measures if measure not in undefined]
    if not measures:
        raise MissingEvidence(
            f"{', '.join(map(str, undefined))} cannot be audited: a run was made with k={min(limits):g}",
            hint=f"use a cutoff of at most {min(limits):g}, or run again with a larger -k",
        )
    judgments = (
        Judgments({})
        if question.qrels is None
        else judgments_for_measures(
            measures, question.qrels, qrels_format=question.form, targets=question.targets, split=question.split
        )
    )
    audit_input = AuditInput(
        judgments,
        runs,
        measures,
        _relax_convention(convention, judgments, runs.values()),
        texts.documents,
        texts.queries,
        {name: [*run.trials()[1:], *repeats.get(name, ())] for name, run in runs.items()},
        undefined,
        _parse_published_scores(question.expect),
        _open_embedder(question.embedder),
    )
    # An input that no convention can score is an error of the caller, not a finding.
    notes = merge_notes(note for run in runs for note in audit_input.scores(run).notes)
    outcome = run_audit_checks(audit_input, chosen, texts.absent)
    about = (
        f"{pluralise(len(judgments), 'judged query')}, {pluralise(len(runs), 'run')}, "
        f"convention {audit_input.convention.name}"
        if audit_input.has_judgments
        else pluralise(len(texts.documents or ()), "document")
    )
    codes = (UNJUDGED_QUERIES, NO_RELEVANT_DOCUMENTS, DIFFERING_TRIALS)
    scored = [note for note in notes if any(has_code(note, code) for code in codes)]
    return Audit(outcome.findings, outcome.skipped, [about, *scored], list(runs))


def _open_embedder(embedder: str | Embedder | None) -> Embedder | None:
    if not isinstance(embedder, str):
        return embedder
    from ragauge.models.embedders import open_embedder  # most audits need no model

    return open_embedder(embedder)


def _relax_convention(convention: Convention, judgments: Judgments, runs: Iterable[Run]) -> Convention:
    """Relax the options of a convention that would reject a run.

    The audit reports these cases as findings.
    """
    judged_queries = set(judgments.pool.queries)
    if convention.missing == "error" and any(
        not judged_queries <= set(run.table["query"].unique().to_list()) for run in runs
    ):
        convention = convention.but(missing="zero")
    files = [run for run in runs if not run.rows_are_hits]
    if convention.duplicates == "error" and any(
        run.table.select("query", "doc").is_duplicated().any() for run in files
    ):
        convention = convention.but(duplicates="first")
    return convention


def _parse_published_scores(expect: ExpectedScores | None) -> list[tuple[str, str]]:
    if expect is None:
        return []
    if isinstance(expect, Mapping):
        return [(str(name), value if isinstance(value, str) else repr(float(value))) for name, value in expect.items()]
    claims: list[tuple[str, str]] = []
    for text in [expect] if isinstance(expect, str) else expect:
        measure, equals, figure = text.rpartition("=")
        if not equals:
            raise BadInput(f"expected MEASURE=VALUE, got `{text}`", hint="use `--expect ndcg@10=0.7439`")
        claims.append((measure.strip(), figure.strip()))
    return claims
