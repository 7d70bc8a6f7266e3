"""Checks for leaked judgments: queries that are documents, verbatim queries, and fields that predict relevance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ragauge.audits.audit_input import AuditInput, FixScorers, describe_effect, without_pairs, without_queries
from ragauge.audits.leakage_fields import WeightedCorpus, find_candidate_fields, find_query_naming_fields
from ragauge.audits.leakage_findings import (
    leaking_field_finding,
    naming_field_finding,
    naming_precision,
    predictors_finding,
)
from ragauge.audits.leakage_predictors import (
    draw_pairs,
    evaluate_predictors,
    evaluate_run_scores,
    relevance_mark_auc,
    text_auc,
)
from ragauge.core.documents import Document
from ragauge.core.errors import MissingEvidence
from ragauge.core.findings import Finding
from ragauge.core.text import normalise, split_words
from ragauge.output.numbers import first_few, format_number, pluralise

if TYPE_CHECKING:
    import polars as pl


MIN_QUERY_WORDS = 4
"""Minimum length of a query in words; a shorter one can occur in a document by chance."""
TOP_DOCUMENTS_COMPARED, RANDOM_DOCUMENTS_COMPARED = 10, 50
"""Documents to compare with: top non-relevant documents per run, and random documents of the corpus."""
SIGNIFICANCE_LEVEL = 0.01
"""Significance level of the tests."""
MIN_VERBATIM_SHARE = 0.05
"""Minimum share of the queries at which verbatim queries are a problem."""
MIN_AUC_GAIN = 0.05
"""Minimum difference of AUC by which a field is better than text."""
MIN_MARK_SHARE, MIN_LEAK_AUC = 0.9, 0.65
"""Share of the way from an AUC of 0.5 to that of a mark on every relevant document, and minimum AUC of a leak."""
MIN_NAMING_PRECISION = 0.5
"""Minimum share of relevant documents among those that name a query at which a name is a leak."""
PERFECT_AUC = 0.995
"""Minimum AUC at which the scores of a run are suspicious if text predicts little."""
MAX_UNINFORMATIVE_TEXT_AUC = 0.6
"""AUC of text up to which it predicts almost nothing."""
MIN_PREDICTOR_AUC = 0.55
"""Minimum AUC at which a field is reported."""


def check_own_documents(audit_input: AuditInput) -> Iterator[Finding]:
    """Check for queries that are documents of the corpus.

    A query is a document if their texts are equal (case and white space ignored), or if their ids are equal and they
    share at least half of their words. A problem if a run returned such documents and they count, or if one is a
    relevant document of its own query. An equal id with another text is a note, unless own=dropped removes that
    document.
    """
    documents, queries = _require_texts(audit_input, "queries that are documents of the corpus")
    by_text: dict[str, set[str]] = {}
    for document in documents:
        for text in {normalise(document.text), normalise(document.whole)} - {""}:
            by_text.setdefault(text, set()).add(document.id)
    own_docs = {query: set(by_text.get(normalise(text), ())) for query, text in queries.items()}
    same_id = [document for document in documents if document.id in queries]
    strangers: list[str] = []
    for document in same_id:
        if _has_similar_words(queries[document.id], document.whole):
            own_docs[document.id].add(document.id)
        elif document.id not in own_docs[document.id]:
            strangers.append(document.id)
    own_docs = {query: docs for query, docs in own_docs.items() if docs}
    if own_docs:
        yield _own_document_finding(audit_input, own_docs, len(queries))
    if strangers:
        yield _shared_id_finding(audit_input, strangers)
    if not own_docs and not strangers:
        yield Finding(
            "queries",
            "own documents",
            problem=False,
            count=0,
            message=f"none of {pluralise(len(queries), 'query')} is a document",
        )


def _has_similar_words(query: str, text: str) -> bool:
    query_words, text_words = set(split_words(query)), set(split_words(text))
    return 2 * len(query_words & text_words) >= len(query_words | text_words) > 0


def _own_document_finding(audit_input: AuditInput, own_docs: Mapping[str, set[str]], total: int) -> Finding:
    grades, convention = audit_input.judgments.nested, audit_input.convention
    right = sum(
        any(grades.get(query, {}).get(doc, 0) >= convention.rel for doc in docs) for query, docs in own_docs.items()
    )
    scored_docs = {
        query: docs - ({query} if convention.own == "dropped" else set()) for query, docs in own_docs.items()
    }
    returned = {name: _count_pairs(run.table, scored_docs) for name, run in audit_input.runs.items()}
    hits_text = "".join(f"; {name} returned {rows:,} to their own query" for name, rows in returned.items() if rows)
    fixes: FixScorers = {
        "they are removed": lambda run: audit_input.scores(run, change=partial(without_pairs, pairs=own_docs))
    }
    changed, grid = describe_effect(audit_input, fixes if any(returned.values()) else {})
    by_id = sum(query in docs for query, docs in own_docs.items())
    return Finding(
        "queries",
        "own documents",
        right > 0 or any(returned.values()),
        len(own_docs),
        f"{len(own_docs):,} of {pluralise(total, 'query')} are documents of the corpus: {by_id:,} by their id, "
        f"{len(own_docs) - by_id:,} under another id; {right:,} of them are judged relevant to themselves{hits_text}",
        first_few(
            [
                f"{query} = {min(docs - {query}, default=query)}"
                for query, docs in own_docs.items()
                if query not in docs
            ],
            3,
        )
        or first_few(list(own_docs)),
        changed,
        grid,
        _drop_remedy(audit_input, scored_docs)
        if any(returned.values())
        else "remove these documents from the results of their own queries",
    )


def _drop_remedy(audit_input: AuditInput, own_docs: Mapping[str, set[str]]) -> str:
    """Describe what to do about own documents of queries in the runs."""
    named = {query: docs & {query} for query, docs in own_docs.items()}
    renamed = [query for query, docs in own_docs.items() if docs - {query}]
    remedies = []
    if any(_count_pairs(run.table, named) for run in audit_input.runs.values()):
        remedies.append("score with `evaluate -C own=dropped`")
    if renamed:
        remedies.append(f"{len(renamed):,} under another id must be removed from the rankings")
    return "; ".join(remedies)


def _shared_id_finding(audit_input: AuditInput, queries: Sequence[str]) -> Finding:
    dropped, kept = (audit_input.convention.but(own=option) for option in ("dropped", "kept"))
    wrong = audit_input.convention.own == "dropped"
    fixes: FixScorers = (
        {"own=kept": lambda run: audit_input.scores(run, convention=kept)}
        if wrong
        else {"own=dropped": lambda run: audit_input.scores(run, convention=dropped)}
    )
    changed, grid = describe_effect(audit_input, fixes)
    return Finding(
        "queries",
        "shared ids",
        wrong,
        len(queries),
        f"{pluralise(len(queries), 'query')} have the id of a document with another text: own=dropped (as in BEIR) "
        f"removes documents that are not the query",
        first_few(queries),
        changed,
        grid,
    )


def check_verbatim_queries(audit_input: AuditInput) -> Iterator[Finding]:
    """Check for queries that occur word for word in a relevant document.

    Only queries of at least 4 words are checked; case and punctuation are ignored. Non-relevant documents serve as
    comparison: those judged so, the first 10 of every run, and 50 random ones. A problem if it holds for at least 5%
    of these queries and at least three of them, and more often in relevant documents than in others by Fisher's
    exact test (p < 0.01).
    """
    from scipy.stats import fisher_exact

    documents, queries = _require_texts(audit_input, "queries inside documents")
    query_words = {query: split_words(text) for query, text in queries.items() if query in audit_input.judgments.nested}
    query_words = {query: words for query, words in query_words.items() if len(words) >= MIN_QUERY_WORDS}
    positions = {document.id: i for i, document in enumerate(documents)}
    texts: dict[int, str] = {}
    first = _top_documents(audit_input)
    rng = np.random.default_rng(0)
    inside: dict[str, str] = {}
    table = np.zeros((2, 2), np.int64)
    for query, words in query_words.items():
        phrase = f" {' '.join(words)} "
        grades = audit_input.judgments.nested[query]
        good = {
            positions[doc] for doc, grade in grades.items() if grade >= audit_input.convention.rel and doc in positions
        }
        random_documents = rng.permutation(len(documents))[:RANDOM_DOCUMENTS_COMPARED].tolist()
        candidates = {positions[doc] for doc in (*grades, *first.get(query, ())) if doc in positions} | set(
            random_documents
        )
        for row, group in enumerate((good, candidates - good - {positions.get(query)})):
            for doc in sorted(group):
                if doc not in texts:
                    texts[doc] = f" {' '.join(split_words(documents[doc].whole))} "
                is_inside = phrase in texts[doc]
                table[row, 0 if is_inside else 1] += 1
                if is_inside and row == 0:
                    inside.setdefault(query, documents[doc].id)
    if not inside:
        message = (
            f"none of {pluralise(len(query_words), 'query')} of {MIN_QUERY_WORDS} words or more is contained in a "
            f"relevant document"
        )
        yield Finding("queries", "verbatim answers", problem=False, count=0, message=message)
        return
    p = float(fisher_exact(table, alternative="greater").pvalue)
    rates = [float(row[0] / row.sum()) if row.sum() else 0.0 for row in table]
    remaining, only = (
        without_queries(audit_input.judgments, out) for out in (set(inside), _other_queries(audit_input, inside))
    )
    fixes: FixScorers = (
        {} if remaining is None else {"they are excluded": lambda run: audit_input.scores(run, judgments=remaining)}
    )
    fixes = {**fixes, "only they are scored": lambda run: audit_input.scores(run, judgments=only)}
    changed, grid = describe_effect(audit_input, fixes)
    yield Finding(
        "queries",
        "verbatim answers",
        p < SIGNIFICANCE_LEVEL and len(inside) >= max(3, MIN_VERBATIM_SHARE * len(query_words)),
        len(inside),
        f"{len(inside):,} of {pluralise(len(query_words), 'query')} of {MIN_QUERY_WORDS} words or more are contained "
        f"verbatim in a relevant document: in {format_number(rates[0], 'share')} of "
        f"{pluralise(int(table[0].sum()), 'relevant document')}, "
        f"in {format_number(rates[1], 'share')} of {pluralise(int(table[1].sum()), 'other')} (p {p:.2g})",
        first_few([f"{query} in {doc}" for query, doc in inside.items()]),
        changed,
        grid,
    )


def check_predictors(audit_input: AuditInput) -> Iterator[Finding]:
    """Check for fields and run scores that leak relevance.

    Fields are metadata, length, position and id. A field is a problem if it predicts relevance (p < 0.01,
    Holm-corrected) and one of two conditions holds. Either its AUC exceeds that of text by 0.05 or more (p < 0.01).
    Or its AUC is at least 0.65 and 0.9 of the way from 0.5 to the AUC of a mark on every document that is relevant
    to any query. Predictive fields with an AUC of at least 0.55 are reported.

    A field that names queries by id is a problem if it predicts relevance and is better than text by as much, or is
    0.9 of the way to a perfect AUC, or if half of the documents that name a query are relevant to it. Otherwise such
    names may come from a pool. If values differ in every document, only presence, prefix and list length are tested,
    and the finding names these fields.

    The scores of a run are a problem if their AUC is 0.995 or more while that of text is at most 0.6. This is not
    checked if most words of the queries do not occur in the corpus.
    """
    documents, queries = _require_texts(audit_input, "fields that predict relevance")
    positions = {document.id: i for i, document in enumerate(documents)}
    pairs = draw_pairs(audit_input.judgments.nested, positions, audit_input.convention.rel)
    if pairs is None or len(pairs.queries) < 2:
        raise MissingEvidence("fields that predict relevance need two queries with relevant documents in the corpus")
    corpus = WeightedCorpus.from_documents(documents)
    text = text_auc(pairs, corpus, queries)
    fields, unread = find_candidate_fields(documents, corpus)
    candidates, naming = (
        {predictor.name: predictor for predictor in fields},
        find_query_naming_fields(documents, audit_input.judgments.nested),
    )
    results = evaluate_predictors(pairs, fields, text, naming)
    predictions, named = results[: len(fields)], results[len(fields) :]
    mark = relevance_mark_auc(pairs, audit_input.judgments.nested, positions, audit_input.convention.rel)
    predictive = [
        relevance_prediction
        for relevance_prediction in predictions
        if relevance_prediction.p < SIGNIFICANCE_LEVEL and relevance_prediction.auc >= MIN_PREDICTOR_AUC
    ]
    leaks = []
    for prediction in predictive:
        better = prediction.p_text < SIGNIFICANCE_LEVEL and prediction.auc >= float(text.mean()) + MIN_AUC_GAIN
        if better or prediction.auc >= max(MIN_LEAK_AUC, 0.5 + MIN_MARK_SHARE * (mark - 0.5)):
            leaks.append(prediction.name)
            yield leaking_field_finding(audit_input, candidates[prediction.name], prediction, text, mark)
    names = [
        (field, relevance_prediction)
        for field, relevance_prediction in zip(naming, named, strict=True)
        if relevance_prediction.p < SIGNIFICANCE_LEVEL and relevance_prediction.auc >= MIN_PREDICTOR_AUC
    ]
    for field, prediction in names:
        better = prediction.p_text < SIGNIFICANCE_LEVEL and prediction.auc >= float(text.mean()) + MIN_AUC_GAIN
        if (
            better
            or prediction.auc >= 0.5 + MIN_MARK_SHARE / 2
            or naming_precision(audit_input, field) >= MIN_NAMING_PRECISION
        ):
            yield naming_field_finding(audit_input, field, prediction, text)
    runs = [
        evaluate_run_scores(pairs, name, _run_scores_by_position(run.table, positions, pairs.queries), text)
        for name, run in audit_input.runs.items()
    ]
    predictors = {word for query in pairs.queries for word in split_words(queries.get(query, ""))}
    shares_language = sum(word in corpus.vocabulary for word in predictors) >= len(predictors) / 2
    for prediction in runs:
        if (
            shares_language
            and prediction.auc >= PERFECT_AUC
            and float(text.mean()) <= MAX_UNINFORMATIVE_TEXT_AUC
            and prediction.p_text < SIGNIFICANCE_LEVEL
        ):
            leak = "scores separate relevant documents from others almost perfectly"
            yield Finding(
                prediction.name,
                "leaking score",
                problem=True,
                count=len(prediction.query_auc),
                message=f"its {leak} (AUC {prediction.auc:.4f} over "
                f"{pluralise(len(prediction.query_auc), 'query')}) where text is close "
                f"to uninformative (AUC {text.mean():.4f})",
                data={"leak": f"{prediction.name}'s {leak}", "ranked_by": [prediction.name]},
            )
    rows = [
        *predictions,
        *(
            replace(relevance_prediction, name=f"query in {relevance_prediction.name}")
            for relevance_prediction in named
        ),
        *runs,
    ]
    yield predictors_finding(
        rows, predictive, leaks, text, mark, [relevance_prediction for _, relevance_prediction in names], unread
    )


def _require_texts(audit_input: AuditInput, purpose: str) -> tuple[Sequence[Document], Mapping[str, str]]:
    if audit_input.documents is None or audit_input.queries is None:
        raise MissingEvidence(f"{purpose} need the documents and the queries", hint="give the corpus and the queries")
    return audit_input.documents, audit_input.queries


def _count_pairs(table: pl.DataFrame, pairs: Mapping[str, set[str]]) -> int:
    """Count the rows of a run that are among the given pairs of query and document."""
    rows = table.select("query", "doc").iter_rows()
    return sum(doc in pairs[query] for query, doc in rows if query in pairs)


def _top_documents(audit_input: AuditInput) -> dict[str, list[str]]:
    """Return the top documents of each query from all runs."""
    documents: dict[str, list[str]] = {}
    for run in audit_input.runs.values():
        best = run.table.sort("score", descending=True, maintain_order=True).group_by("query", maintain_order=True)
        for query, doc in best.head(TOP_DOCUMENTS_COMPARED).select("query", "doc").iter_rows():
            documents.setdefault(query, []).append(doc)
    return documents


def _other_queries(audit_input: AuditInput, queries: Mapping[str, str]) -> set[str]:
    return set(audit_input.judgments.nested) - set(queries)


def _run_scores_by_position(
    table: pl.DataFrame, positions: Mapping[str, int], queries: Sequence[str]
) -> dict[str, dict[int, float]]:
    import polars as pl

    scores_by_query: dict[str, dict[int, float]] = {}
    rows = table.filter(pl.col("query").is_in(list(queries)))
    for query, doc, score in rows.select("query", "doc", "score").iter_rows():
        if doc in positions:
            scores_by_query.setdefault(query, {})[positions[doc]] = score
    return scores_by_query
