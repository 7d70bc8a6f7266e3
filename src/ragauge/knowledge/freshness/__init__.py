"""Freshness of a run: its stale hits and version conflicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragauge.core.documents import EMPTY_MAPPING
from ragauge.core.errors import BadInput
from ragauge.core.hashes import hash_text
from ragauge.core.records import Run
from ragauge.core.settings import check_int
from ragauge.datasets.folders import read_queries
from ragauge.files.json_files import read_json
from ragauge.files.source import InputFile
from ragauge.knowledge.freshness.results import DocumentVersion, Freshness, QueryFreshness
from ragauge.knowledge.freshness.stale_hits import NO_RESULTS_REASON, VersionIndex, count_stale
from ragauge.knowledge.freshness.versions_file import parse_time, read_versions
from ragauge.output.numbers import join_names, pluralise
from ragauge.runs.folder import provenance, utc_now
from ragauge.runs.inputs import Inputs, open_only_run
from ragauge.runs.texts import DocumentTexts, find_run_texts, load_documents

if TYPE_CHECKING:
    import polars as pl


TextLookup = Callable[[str], str | None]


@dataclass(frozen=True, eq=False)
class _RunRankings:
    """Rankings and metadata of a run, as needed for freshness."""

    name: str
    rankings: Mapping[str, Sequence[str]]
    """Top documents of each query, best first."""
    unanswered_queries: Mapping[str, str] = field(default_factory=lambda: EMPTY_MAPPING)
    """Other queries of the run, with the reason why they have no results."""
    texts: Mapping[str, str] = field(default_factory=lambda: EMPTY_MAPPING)
    """Query texts, if known."""
    manifest: Mapping[str, Any] = field(default_factory=lambda: EMPTY_MAPPING)
    notes: Sequence[str] = ()


def freshness(
    run: Any,
    versions: Any,
    *,
    k: int = 10,
    corpus: Any = None,
    queries: Any = None,
    as_of: Any = None,
) -> Freshness:
    """Measure how many of the top `k` hits of a run are stale or in conflict.

    `run` is a run folder, or any input of `read_run`. `versions` is a file or a list of `{doc_id, version_key,
    effective_timestamp, superseded_by}`. `corpus` (a dataset, a corpus, Documents, or texts by id) separates copies
    from conflicts; a run folder finds its own. `queries` are those that the run should have: ids, texts by id, or a
    file. Without them, missing queries cannot be detected. `as_of` is a time; versions that take effect later replace
    nothing.

    >>> versions = [{"doc_id": "old", "superseded_by": "new"}]
    >>> found = freshness({"q1": {"old": 2.0, "x": 1.0}, "q2": {"new": 1.0}, "q3": {}}, versions)
    >>> found.stale_rate, found.queries[0].stale[0].newer, dict(found.unscored)
    (0.3333333333333333, 'new', {'q3': 'no results'})
    """
    check_int("k", k)
    version_list = read_versions(versions)
    run_rankings = _open_run(run, k)
    expected = _read_expected_queries(queries)
    ages = VersionIndex(version_list, None if as_of is None else parse_time(as_of, "as_of"))
    texts = _load_texts(corpus, run_rankings.manifest)
    query_results, unscored = count_stale(
        run_rankings.rankings, [*run_rankings.unanswered_queries, *expected], ages, _text_lookup(texts)
    )
    unscored |= {query: why for query, why in run_rankings.unanswered_queries.items() if query in unscored}
    notes = [
        *run_rankings.notes,
        *_freshness_notes(query_results, unscored, version_list, texts),
        *_early_notes(run_rankings, ages),
    ]
    if (
        query_results
        and not any(query.versioned for query in query_results)
        and not _has_version_in_corpus(version_list, texts)
    ):
        unscored = {query.query: NO_VERSIONED_HIT_REASON for query in query_results} | unscored
        query_results = []
    query_texts = {**run_rankings.texts, **expected}
    affected = [query.query for query in query_results if query.stale or query.conflicts]
    run_provenance = {
        "made": utc_now(),
        **provenance(),
        "run": str(run) if isinstance(run, str | Path) else run_rankings.name,
    }
    run_provenance |= {"versions_file": str(versions)} if isinstance(versions, str | Path) else {}
    return Freshness(
        run=run_rankings.name,
        k=k,
        queries=query_results,
        unscored=unscored,
        versions=len(version_list),
        compared=texts.documents is not None,
        fingerprint=versions_fingerprint(version_list, as_of),
        texts={query: query_texts[query] for query in affected if query_texts.get(query)},
        as_of="" if as_of is None else str(as_of),
        notes=notes,
        provenance=run_provenance,
    )


NO_VERSIONED_HIT_REASON = "no returned document is in the versions"


def _open_run(source: Any, k: int) -> _RunRankings:
    """Open a run from a path or an object, cut to its top documents."""
    run = open_only_run(source)
    if run.manifest or isinstance(source, Run):
        return _from_run(run, k, _folder_queries(source) if isinstance(source, str | Path) else {})
    if isinstance(source, str | Path) and InputFile(str(source)).ending == ".json":
        source = read_json(InputFile(str(source)))
    return _RunRankings(run.name, top_documents(run.table, k), _queries_without_hits(source))


def _queries_without_hits(rankings: Any) -> dict[str, str]:
    """Return the queries of a mapping that have no documents.

    A table cannot represent them.
    """
    if not isinstance(rankings, Mapping):
        return {}
    return {
        str(query): NO_RESULTS_REASON for query, docs in rankings.items() if hasattr(docs, "__len__") and not len(docs)
    }


def _from_run(run: Run, k: int, texts: Mapping[str, str]) -> _RunRankings:
    reasons: dict[str, str] = {}
    if run.timings is not None:
        for query, repeat, status, error in run.timings.select("query", "repeat", "status", "error").iter_rows():
            if repeat == 0:
                reasons[query] = NO_RESULTS_REASON if status == "ok" else f"the query failed ({error or status})"
    table = run.table.unique(["query", "doc"], keep="first", maintain_order=True) if run.rows_are_hits else run.table
    rankings = top_documents(table, k)
    n_differing = len(run.differing())
    notes = (
        [f"the rankings of {run.name} differ between {n_differing} trials; the first trial is used"]
        if n_differing
        else []
    )
    name = str((run.manifest.get("system") or {}).get("name") or run.name)
    missing = {query: why for query, why in reasons.items() if query not in rankings}
    return _RunRankings(name, rankings, missing, texts, run.manifest, notes)


def _folder_queries(folder: str | Path) -> Mapping[str, str]:
    try:
        return Inputs.resolve(folder).query_texts
    except BadInput:  # a folder moved out of its experiment
        return {}


def top_documents(table: pl.DataFrame, k: int) -> dict[str, list[str]]:
    """Return the top k documents of each query, best first; ties by id, descending.

    BadInput is raised for a missing score or a duplicate document.

    >>> import polars as pl
    >>> top_documents(pl.DataFrame({"query": ["q"] * 3, "doc": ["a", "b", "c"], "score": [1.0, 2.0, 1.0]}), 2)
    {'q': ['b', 'c']}
    """
    import polars as pl

    unscored = table.filter(pl.col("score").is_nan() | pl.col("score").is_null())
    if unscored.height:
        raise BadInput(f"document `{unscored['doc'][0]}` of query `{unscored['query'][0]}` has no score")
    repeats = table.filter(pl.struct("query", "doc").is_duplicated())
    if repeats.height:
        raise BadInput(
            f"document `{repeats['doc'][0]}` appears more than once in the ranking of query `{repeats['query'][0]}`",
            hint="`ragauge validate` lists them all",
        )
    order = {query: i for i, query in enumerate(table["query"].unique(maintain_order=True).to_list())}
    best = table.sort(["query", "score", "doc"], descending=[False, True, True])
    firsts = best.group_by("query", maintain_order=True).agg(pl.col("doc").head(k))
    documents = dict(zip(firsts["query"].to_list(), firsts["doc"].to_list(), strict=True))
    return {query: documents[query] for query in order}


def _read_expected_queries(queries: Any) -> dict[str, str]:
    """Read the queries that the run should have; an unknown text is empty."""
    if queries is None:
        return {}
    if isinstance(queries, str | Path):
        return read_queries(Path(queries))
    if isinstance(queries, Mapping):
        return {str(query): text if isinstance(text, str) else "" for query, text in queries.items()}
    if not isinstance(queries, Iterable):
        raise BadInput(f"queries cannot be read from {type(queries).__name__}", hint="give ids, texts by id, or a file")
    return {str(query): "" for query in queries}


def _load_texts(documents: Any, manifest: Mapping[str, Any]) -> DocumentTexts:
    """Return the documents given, or find those named in the run's manifest.

    They are loaded even if there is nothing to compare, so that `compared` does not depend on the hits.
    """
    if documents is not None:
        return DocumentTexts(load_documents(documents))
    if not manifest:
        return DocumentTexts()
    return find_run_texts([manifest], DocumentTexts(), str((manifest.get("dataset") or {}).get("name") or ""))


def _text_lookup(texts: DocumentTexts) -> TextLookup:
    by_id = {document.id: document.whole for document in texts.documents or ()}
    return by_id.get


def _has_version_in_corpus(versions: Sequence[DocumentVersion], texts: DocumentTexts) -> bool:
    """Return whether at least one version is of a document of the corpus."""
    if texts.documents is None:
        return False
    ids = {document.id for document in texts.documents}
    return any(name in ids for version in versions for name in (version.doc, version.superseded_by))


def _freshness_notes(
    queries: Sequence[QueryFreshness],
    unscored: Mapping[str, str],
    versions: Sequence[DocumentVersion],
    texts: DocumentTexts,
) -> list[str]:
    notes = []
    groups = sum(len(query.conflicts) + len(query.copies) for query in queries)
    if texts.documents is None and groups:
        why = texts.absent.get("documents") or "no corpus given"
        notes.append(f"texts were not compared ({why}), so copies of one version count as conflicts")
    if texts.documents is not None:
        ids = {document.id for document in texts.documents}
        lost = [
            version.superseded_by for version in versions if version.superseded_by and version.superseded_by not in ids
        ]
        if lost:
            notes.append(f"{pluralise(len(lost), 'replacement')} not in the corpus: {_first_few(lost)}")
        strange = [version.doc for version in versions if version.doc not in ids]
        if strange:
            notes.append(f"{pluralise(len(strange), 'versioned document')} not in the corpus: {_first_few(strange)}")
        blind = [d for query in queries for group in query.conflicts for d in group.docs if d not in ids]
        if blind:
            notes.append(f"{pluralise(len(set(blind)), 'text')} unknown and not compared: {_first_few(blind)}")
    looked = sum(query.considered for query in queries)
    versioned = sum(query.versioned for query in queries)
    if queries and versioned < looked:
        notes.append(
            f"{looked - versioned:,} of {looked:,} positions have documents without a version, which count as fresh"
            if versioned
            else f"{NO_VERSIONED_HIT_REASON}; check that both have the same ids"
        )
    if unscored:
        first, reason = next(iter(unscored.items()))
        notes.append(f"{pluralise(len(unscored), 'query')} unscored and left out of all rates, first {first}: {reason}")
    return notes


def _early_notes(returned: _RunRankings, ages: VersionIndex) -> list[str]:
    """Return a note if the run returned documents that take effect later than `as_of`."""
    early = [doc for docs in returned.rankings.values() for doc in docs if not ages.holds(doc)]
    return (
        [f"{pluralise(len(early), 'position')} with a document that takes effect later: {_first_few(early)}"]
        if early
        else []
    )


def _first_few(names: Sequence[str]) -> str:
    return join_names(list(dict.fromkeys(names)), 3)


def versions_fingerprint(versions: Sequence[DocumentVersion], as_of: Any = None) -> str:
    """Return a short hash of the versions and of `as_of`.

    Rates with other hashes are not comparable.
    """
    content = repr(sorted(map(tuple, versions), key=repr))
    return hash_text(content + ("" if as_of is None else repr(parse_time(as_of))), 12)
