"""Findings about leaking fields: the score of a ranking by the field alone, and the runs that follow it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ragauge.audits.audit_input import AuditInput, none_if_nan
from ragauge.audits.comparability import metadata_priors
from ragauge.audits.leakage_fields import CandidateField, QueryNamingField
from ragauge.audits.leakage_predictors import RelevancePrediction
from ragauge.core.findings import Finding, FindingTable
from ragauge.core.records import Floats, Run
from ragauge.output.numbers import first_few, join_names, pluralise

MIN_FOLLOWER_CORRELATION = 0.9
"""Minimum rank correlation at which a run counts as ranking by a field."""
MAX_MEASURES_SHOWN = 3
"""Maximum number of measures shown in the grid."""
FIELD_RUN_DEPTH, MAX_FIELD_RUN_ROWS = 1000, 1_000_000
"""Documents per query of a ranking by a field, and the maximum number of its rows over all queries."""


def leaking_field_finding(
    audit_input: AuditInput, field: CandidateField, result: RelevancePrediction, text: Floats, mark: float
) -> Finding:
    """Build the finding of a leaking field.

    It includes the scores of a ranking by the field and of all runs. A run follows the field if its scores correlate
    with the values, or if its manifest names the field as its prior.
    """
    field_run = build_field_run(audit_input, field, result)
    name = f"by {field.name} alone"
    scores = {name: audit_input.scores(field_run)} | {run: audit_input.scores(run) for run in audit_input.runs}
    rho = field_rank_correlations(audit_input, field, lower_is_relevant=bool(result.lower_is_relevant))
    names = [str(measure) for measure in audit_input.measures[:MAX_MEASURES_SHOWN]]
    rows = [
        [run, *(none_if_nan(scores.means[measure]) for measure in names), rho.get(run)]
        for run, scores in scores.items()
    ]
    first = names[0]
    run_scores_text = "".join(f", of {run} {scores[run].means[first]:.4f}" for run in list(audit_input.runs)[:4])
    using_runs = {
        run
        for run, record in audit_input.runs.items()
        if field.name in _metadata_field_names(metadata_priors(record.manifest))
    }
    behind = [
        run
        for run, value in rho.items()
        if run in using_runs or (value is not None and value >= MIN_FOLLOWER_CORRELATION)
    ]
    ranked_by = f"; ranked by it: {', '.join(behind)}" if behind else ""
    leak = f"{field.name} separates relevant documents from others without using the query"
    return Finding(
        "corpus",
        "leaking field",
        problem=True,
        count=len(result.query_auc),
        message=f"{leak}: AUC {result.auc:.4f} over "
        f"{pluralise(len(result.query_auc), 'query')} (p {result.p:.2g}); a mark on every relevant document would have "
        f"{mark:.4f}, the query words have {text.mean():.4f} (p of the difference {result.p_text:.2g}){ranked_by}",
        effect=f"{first} of a ranking {name} {scores[name].means[first]:.4f}{run_scores_text}",
        table=FindingTable(["ranking", *names, "rank correlation"], rows),
        data={"leak": leak, "ranked_by": behind},
    )


def _metadata_field_names(paths: Iterable[str]) -> set[str]:
    """Return the names that the audit uses for metadata fields."""
    return {f"metadata `{path}`" for path in paths}


def naming_field_finding(
    audit_input: AuditInput, naming: QueryNamingField, result: RelevancePrediction, text: Floats
) -> Finding:
    """Build the finding of a field that names the queries a document is relevant to.

    Includes the scores of a ranking by the field and of all runs.
    """
    name = f"by {naming.name} alone"
    scores = {name: audit_input.scores(build_naming_run(audit_input, naming))} | {
        run: audit_input.scores(run) for run in audit_input.runs
    }
    names = [str(measure) for measure in audit_input.measures[:MAX_MEASURES_SHOWN]]
    first = names[0]
    run_scores_text = "".join(f", of {run} {scores[run].means[first]:.4f}" for run in list(audit_input.runs)[:4])
    documents = audit_input.documents or ()
    examples = [f"{documents[min(docs)].id} names {query}" for query, docs in naming.documents.items()]
    leak = f"{naming.name} contains the id of the query that a document answers"
    return Finding(
        "corpus",
        "leaking field",
        problem=True,
        count=len(result.query_auc),
        message=f"{leak}: AUC {result.auc:.4f} over "
        f"{pluralise(len(result.query_auc), 'query')} (p {result.p:.2g}); the query words have {text.mean():.4f}",
        examples=first_few(examples, 3),
        effect=f"{first} of a ranking {name} {scores[name].means[first]:.4f}{run_scores_text}",
        table=FindingTable(
            ["ranking", *names],
            [[run, *(none_if_nan(scores.means[measure]) for measure in names)] for run, scores in scores.items()],
        ),
        data={"leak": leak, "ranked_by": []},
    )


def naming_precision(audit_input: AuditInput, naming: QueryNamingField) -> float:
    """Return the share of the documents naming a query that are relevant to it.

    Mean over the queries that are named; 0 if there is none.
    """
    shares = []
    for query, docs in naming.documents.items():
        grades = audit_input.judgments.nested.get(query, {})
        ids = {(audit_input.documents or ())[position].id for position in docs} - {query}
        if ids:
            shares.append(sum(grades.get(doc, 0) >= audit_input.convention.rel for doc in ids) / len(ids))
    return float(np.mean(shares)) if shares else 0.0


def build_naming_run(audit_input: AuditInput, naming: QueryNamingField) -> Run:
    """Build a run that returns the documents naming each query, then one other."""
    import polars as pl

    documents = audit_input.documents or ()
    rows = []
    for query in audit_input.judgments.nested:
        named = naming.documents.get(query, set())
        any_other = next((i for i in range(len(documents)) if i not in named), 0)
        for position, score in {any_other: 0.0, **dict.fromkeys(sorted(named), 1.0)}.items():
            rows.append((query, documents[position].id, score))
    schema = {"query": pl.String, "doc": pl.String, "score": pl.Float64}
    return Run(pl.DataFrame(rows, schema=schema, orient="row"), naming.name)


def predictors_finding(
    predictions: Sequence[RelevancePrediction],
    predictive: Sequence[RelevancePrediction],
    leaks: Sequence[str],
    text: Floats,
    mark: float,
    names: Sequence[RelevancePrediction] = (),
    unread: Sequence[str] = (),
) -> Finding:
    """Build the finding that lists all candidate fields and which predict relevance.

    It also says why predictive fields that are not leaks are only a note.
    """
    rows: list[list[str | float | None]] = [
        ["query words", float(text.mean()), None, None],
        ["mark on all relevant documents", mark, None, None],
    ]
    rows += [
        [prediction.name, prediction.auc, none_if_nan(prediction.p), prediction.p_text] for prediction in predictions
    ]
    directions = {True: "lower, ", False: "higher, ", None: ""}
    described = ", ".join(
        f"{prediction.name} ({directions[prediction.lower_is_relevant]}{prediction.auc:.2f})"
        for prediction in predictive
    )
    if not predictive:
        message = "no query-independent field separates relevant documents from others"
        message += f"; the query words have an AUC of {text.mean():.2f}"
    else:
        message = f"relevant documents differ from others in query-independent fields: {described}"
        message += (
            f"; the query words have an AUC of {text.mean():.2f}, a field that marks all relevant documents {mark:.2f}"
        )
    if len(leaks) < len(predictive):
        subject = f"all but {', '.join(leaks)} are" if leaks else "this is" if len(predictive) == 1 else "these are"
        message += (
            f"; {subject} not a problem: neither significantly better than the query words nor close to the AUC of "
            "marked documents"
        )
    if names:
        described = ", ".join(f"{prediction.name} ({prediction.auc:.2f})" for prediction in names)
        message += f"; documents contain the ids of the queries that they answer more often than others: {described}"
    if unread:
        message += f"; not checked value by value: {join_names(unread)}"
    return Finding(
        "corpus",
        "predictors",
        problem=False,
        count=len(predictive),
        message=message,
        table=FindingTable(["predictor", "AUC", "p", "p against text"], rows),
    )


def build_field_run(audit_input: AuditInput, field: CandidateField, prediction: RelevancePrediction) -> Run:
    """Build a run that ranks all documents by a field.

    The document with the id of the query is left out.
    """
    import polars as pl

    documents = audit_input.documents or ()
    sort_values = _category_relevance(audit_input, field) if field.kinds else field.values
    depth = min(FIELD_RUN_DEPTH, max(100, MAX_FIELD_RUN_ROWS // len(audit_input.judgments)))
    order = np.argsort(sort_values if prediction.lower_is_relevant else -sort_values, kind="stable")[: depth + 1]
    ids = [documents[position].id for position in order.tolist()]
    scores = (-sort_values if prediction.lower_is_relevant else sort_values)[order]
    tables = []
    for query in audit_input.judgments.nested:
        frame = pl.DataFrame({"query": [query] * len(ids), "doc": ids, "score": scores})
        tables.append(frame.filter(pl.col("doc") != query).head(depth))
    return Run(pl.concat(tables), field.name)


def _category_relevance(audit_input: AuditInput, field: CandidateField) -> Floats:
    """Return for each document how often the documents of its category are relevant."""
    positions = {document.id: i for i, document in enumerate(audit_input.documents or ())}
    right = np.zeros(len(field.values))
    for docs in audit_input.judgments.nested.values():
        for doc, grade in docs.items():
            if grade >= audit_input.convention.rel and doc in positions:
                right[positions[doc]] += 1
    codes = field.values.astype(np.int64)
    rates = np.bincount(codes, right, field.kinds) / np.maximum(np.bincount(codes, minlength=field.kinds), 1)
    return np.asarray(rates[codes])


def field_rank_correlations(
    audit_input: AuditInput, field: CandidateField, *, lower_is_relevant: bool
) -> dict[str, float | None]:
    """Return the mean Spearman correlation of each run's scores with a field.

    None if undefined.
    """
    from scipy.stats import rankdata

    positions = {document.id: i for i, document in enumerate(audit_input.documents or ())}
    correlations: dict[str, float | None] = {}
    for name, run in audit_input.runs.items():
        coefficients = []
        for _, part in run.table.group_by("query", maintain_order=True):
            rows = [
                (positions[doc], score) for doc, score in part.select("doc", "score").iter_rows() if doc in positions
            ]
            if len(rows) < 3:
                continue
            field_ranks = rankdata([field.values[doc] * (-1 if lower_is_relevant else 1) for doc, _ in rows])
            score_ranks = rankdata([score for _, score in rows])
            if field_ranks.std() > 0 and score_ranks.std() > 0:
                coefficients.append(float(np.corrcoef(field_ranks, score_ranks)[0, 1]))
        correlations[name] = float(np.mean(coefficients)) if coefficients and not field.kinds else None
    return correlations
