"""Fields that predict relevance, told: what a ranking by one alone would score, and which runs rank by it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ragauge.audits.evidence import Evidence
from ragauge.audits.fields import Field
from ragauge.audits.predictors import Prediction
from ragauge.audits.wording import counted
from ragauge.findings import Finding, Grid
from ragauge.records import Floats, Run

FOLLOWS = 0.9
"""A run ranks by a field where their rank correlation is so high."""
MEASURES = 3
"""How many of the measures are shown beside that."""
DEPTH, ROWS = 1000, 1_000_000
"""Documents of the ranking by a field, fewer where it would have more rows than these."""


def leaking_field(evidence: Evidence, field: Field, one: Prediction, text: Floats, mark: float) -> Finding:
    """A field that tells more than it should; the scores of all runs beside that of a ranking by it."""
    alone = by_field(evidence, field, one)
    name = f"by {field.name.removeprefix('metadata ')} alone"
    scores = {name: evidence.scores(alone)} | {run: evidence.scores(run) for run in evidence.runs}
    rho = followers(evidence, field, falling=bool(one.falling))
    names = [str(measure) for measure in evidence.measures[:MEASURES]]
    rows = [[one, *(_known(found.means[measure]) for measure in names), rho.get(one)] for one, found in scores.items()]
    first = names[0]
    others = "".join(f", of {run} {scores[run].means[first]:.4f}" for run in list(evidence.runs)[:4])
    behind = [run for run, value in rho.items() if value is not None and value >= FOLLOWS]
    who = f"; ranked by it: {', '.join(behind)}" if behind else ""
    return Finding(
        "corpus",
        "leaking field",
        True,
        len(one.each),
        f"{field.name} tells relevant documents from others without knowing the query: AUC {one.auc:.4f} over "
        f"{counted(len(one.each), 'query')} (p {one.p:.2g}); a mark on every answer would have {mark:.4f}, the words "
        f"of the query have {text.mean():.4f} (p {one.p_text:.2g}){who}",
        effect=f"{first} of a ranking {name} {scores[name].means[first]:.4f}{others}",
        grid=Grid(["ranking", *names, "rank correlation"], rows),
    )


def all_predictors(found: Sequence[Prediction], telling: Sequence[Prediction], text: Floats, mark: float) -> Finding:
    """Every candidate with its figures, and which of them predict."""
    rows: list[list[str | float | None]] = [
        ["words of the query", float(text.mean()), None, None],
        ["mark on all answers", mark, None, None],
    ]
    rows += [[one.name, one.auc, _known(one.p), one.p_text] for one in found]
    side = {True: "lower, ", False: "higher, ", None: ""}
    told = ", ".join(f"{one.name} ({side[one.falling]}{one.auc:.2f})" for one in telling)
    if telling:
        message = f"relevant documents differ from others in what does not know the query: {told}"
    else:
        message = "nothing that does not know the query tells relevant documents from others"
    return Finding(
        "corpus",
        "predictors",
        False,
        len(telling),
        f"{message}; the words of the query have an AUC of {text.mean():.2f}",
        grid=Grid(["predictor", "AUC", "p", "p against text"], rows),
    )


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def by_field(evidence: Evidence, field: Field, found: Prediction) -> Run:
    """The run of a system that gives every query the documents with the best values; its own document is left out."""
    import polars as pl

    documents = evidence.documents or ()
    worth = _worth(evidence, field) if field.kinds else field.values
    depth = min(DEPTH, max(100, ROWS // len(evidence.judgments)))
    order = np.argsort(worth if found.falling else -worth, kind="stable")[: depth + 1]
    ids = [documents[place].id for place in order.tolist()]
    scores = (-worth if found.falling else worth)[order]
    tables = []
    for query in evidence.judgments.nested:
        one = pl.DataFrame({"query": [query] * len(ids), "doc": ids, "score": scores})
        tables.append(one.filter(pl.col("doc") != query).head(depth))
    return Run(pl.concat(tables), field.name)


def _worth(evidence: Evidence, field: Field) -> Floats:
    """How often the documents of each category are relevant."""
    place = {document.id: i for i, document in enumerate(evidence.documents or ())}
    right = np.zeros(len(field.values))
    for docs in evidence.judgments.nested.values():
        for doc, grade in docs.items():
            if grade >= evidence.rules.rel and doc in place:
                right[place[doc]] += 1
    codes = field.values.astype(np.int64)
    each = np.bincount(codes, right, field.kinds) / np.maximum(np.bincount(codes, minlength=field.kinds), 1)
    return np.asarray(each[codes])


def followers(evidence: Evidence, field: Field, *, falling: bool) -> dict[str, float | None]:
    """For each run the mean of Spearman's rank correlation between its scores and a field; None where it has none."""
    from scipy.stats import rankdata

    place = {document.id: i for i, document in enumerate(evidence.documents or ())}
    found: dict[str, float | None] = {}
    for name, run in evidence.runs.items():
        each = []
        for _, part in run.table.group_by("query", maintain_order=True):
            rows = [(place[doc], score) for doc, score in part.select("doc", "score").iter_rows() if doc in place]
            if len(rows) < 3:
                continue
            one = rankdata([field.values[doc] * (-1 if falling else 1) for doc, _ in rows])
            two = rankdata([score for _, score in rows])
            if one.std() > 0 and two.std() > 0:
                each.append(float(np.corrcoef(one, two)[0, 1]))
        found[name] = float(np.mean(each)) if each and not field.kinds else None
    return found
