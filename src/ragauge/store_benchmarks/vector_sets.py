"""Vector sets for benchmarks: from files, folders, datasets with an embedder, or a seed."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragauge.compute.progress import ProgressCallback, no_progress
from ragauge.core.errors import BadInput
from ragauge.core.protocols import Embedder
from ragauge.core.records import Dataset, Judgments
from ragauge.core.settings import check_choice, check_int
from ragauge.datasets import load
from ragauge.files.source import InputFile
from ragauge.files.vectors import VectorFile, first_bad_row, is_vector_file, read_vectors
from ragauge.files.workspace import cache_folder
from ragauge.models.embedders import open_embedder
from ragauge.models.embedders.embedding import embed_texts
from ragauge.store_benchmarks.ann_benchmarks_hdf5 import is_hdf5, read_hdf5
from ragauge.store_benchmarks.results import Matrix, VectorSet
from ragauge.stores.bookkeeping import METRICS, Mask

CLUSTERED_OPTIONS: dict[str, int | float] = {
    "n": 20_000,
    "d": 64,
    "clusters": 100,
    "queries": 200,
    "spread": 0.5,
    "seed": 0,
}
ROWS_PER_BATCH = 65_536


def parse_clustered_options(text: str) -> dict[str, int | float]:
    """Parse the options in `clustered:n=20000,d=64`; only those that are given.

    >>> parse_clustered_options("clustered:n=500,spread=0.2")
    {'n': 500, 'spread': 0.2}
    """
    options: dict[str, int | float] = {}
    for part in filter(None, (piece.strip() for piece in text.partition(":")[2].split(","))):
        name, _, value = part.partition("=")
        try:
            if name not in CLUSTERED_OPTIONS:
                raise ValueError
            options[name] = float(value) if name == "spread" else int(value.replace("_", ""))
        except ValueError:
            example = ",".join(f"{key}={default:g}" for key, default in CLUSTERED_OPTIONS.items())
            raise BadInput(f"unknown option `{part}` of clustered vectors", hint=f"clustered:{example}") from None
    return options


def generate_clustered_vectors(metric: str = "l2", **options: float) -> VectorSet:
    """Generate normally distributed clusters; `spread` is their mean width.

    The probability of the c-th largest cluster is proportional to 1 / c. Widths vary by a factor of up to two. The
    queries have the same distribution as the vectors, and are drawn independently.

    >>> made = generate_clustered_vectors(n=100, d=4, clusters=5, queries=3)
    >>> made.base.shape, made.queries.shape, made.name
    ((100, 4), (3, 4), 'clustered:n=100,d=4,clusters=5,queries=3')
    """
    vectors = {**CLUSTERED_OPTIONS, **options}
    count, dimension, clusters = (check_int(name, vectors[name]) for name in ("n", "d", "clusters"))
    queries, seed, spread = (
        check_int("queries", vectors["queries"]),
        check_int("seed", vectors["seed"], 0),
        float(vectors["spread"]),
    )
    if not 0 <= spread <= 1e6:
        raise BadInput(f"spread must be at least 0, got {spread:g}")
    shape = np.random.default_rng([seed, 0])
    centres = shape.standard_normal((clusters, dimension))
    widths = spread * shape.uniform(2 / 3, 4 / 3, clusters)
    likely = 1 / np.arange(1, clusters + 1)

    def draw(rows: int, stream: int) -> Any:
        # Separate random streams: the number of vectors does not affect the queries.
        random = np.random.default_rng([seed, stream])
        chosen = random.choice(clusters, rows, p=likely / likely.sum())
        out = np.empty((rows, dimension), np.float32)
        for start in range(0, rows, ROWS_PER_BATCH):
            part = chosen[start : start + ROWS_PER_BATCH]
            out[start : start + len(part)] = centres[part] + widths[part, None] * random.standard_normal(
                (len(part), dimension)
            )
        return out

    named = ",".join(
        f"{name}={vectors[name]:g}" for name in CLUSTERED_OPTIONS if vectors[name] != CLUSTERED_OPTIONS[name]
    )
    name = f"clustered:{named}" if named else "clustered"
    return VectorSet(name, draw(count, 1), draw(queries, 2), metric)


DEFAULT_EMBEDDER = "wordllama"
MAX_HELD_OUT_QUERIES = 1000
"""Default number of rows of a file without queries that become queries; at most a tenth of the rows."""
BASE_FILE_WORDS = (("base",), ("train",), ("learn",))
QUERY_FILE_WORDS = ("query", "queries", "test")
NEIGHBOUR_FILE_WORDS = ("groundtruth", "gt", "neighbors", "neighbours")
METRIC_FILE_WORDS = {"euclidean": "l2", "angular": "cosine", "dot": "ip", **{metric: metric for metric in METRICS}}
"""Words in the name of a neighbour file, and the metric that they stand for."""


def load_vector_set(
    what: str | Path | Dataset | VectorSet,
    *,
    metric: str | None = None,
    embedder: str | Embedder | None = None,
    max_vectors: int | None = None,
    max_queries: int | None = None,
    seed: int = 0,
    progress: ProgressCallback = no_progress,
) -> VectorSet:
    """Load vectors from a file, a folder or a dataset, or generate them from a seed.

    - an HDF5 file of ann-benchmarks;
    - a folder with `base`, `query` and `groundtruth` files, or the name of such a folder in RAGAUGE_DATA;
    - one file of vectors, of which `max_queries` rows are held out by `seed`;
    - a dataset that `load` accepts, embedded by `embedder` (`wordllama` by default);
    - `clustered`, or `clustered:n=20000,d=64,clusters=100,queries=200,spread=0.5,seed=0`.

    Without a `metric`, that of the data is used; if there is none, `cosine` for texts and `l2` for vectors.
    `max_vectors` keeps the first vectors and `max_queries` the first queries. Published neighbours are dropped if
    `max_vectors` removes vectors.
    """
    if metric is not None:
        check_choice("metric", metric, METRICS)
    for name, value in (("max_vectors", max_vectors), ("max_queries", max_queries)):
        if value is not None:
            check_int(name, value)
    if embedder is not None and (
        isinstance(what, VectorSet) or (not isinstance(what, Dataset) and _holds_vectors(what))
    ):
        raise BadInput(
            f"an embedder does not apply to vectors; expected a dataset with texts, got {what!s:.80}",
            hint="remove the embedder, or give a dataset: ragauge bench pydocs --embedder wordllama",
        )
    if isinstance(what, VectorSet):
        vector_set = what if metric in (None, what.metric) else replace(what, metric=metric, neighbours=None)
        return _finalise_vector_set(check_finite(_limit_vectors(vector_set, max_vectors, max_queries)))
    if isinstance(what, Dataset):
        return _finalise_vector_set(_embed_dataset(what, metric, embedder, max_vectors, max_queries, progress))
    text = str(what)
    if text == "clustered" or text.startswith("clustered:"):
        options = {
            "seed": seed,
            **({} if max_queries is None else {"queries": max_queries}),
            **parse_clustered_options(text),
        }
        return _finalise_vector_set(
            _limit_vectors(generate_clustered_vectors(metric or "l2", **options), max_vectors, max_queries)
        )
    path = _find_vector_path(text)
    if path is not None and path.is_dir() and _find_base_files(path):
        return _finalise_vector_set(_load_vector_folder(path, metric, max_vectors, max_queries, seed))
    if path is not None and is_hdf5(path):
        return _finalise_vector_set(read_hdf5(path, metric=metric, max_vectors=max_vectors, max_queries=max_queries))
    if path is not None and is_vector_file(path):
        return _finalise_vector_set(_load_vector_file(path, metric, max_vectors, max_queries, seed))
    return _finalise_vector_set(_embed_dataset(load(what), metric, embedder, max_vectors, max_queries, progress))


def _holds_vectors(source: str | Path) -> bool:
    """Return whether a name refers to vectors and not to texts."""
    text = str(source)
    path = _find_vector_path(text)
    if text == "clustered" or text.startswith("clustered:"):
        return True
    return path is not None and (
        bool(path.is_dir() and _find_base_files(path)) or is_hdf5(path) or is_vector_file(path)
    )


def _find_vector_path(text: str) -> Path | None:
    """Return the file or folder of that name, here or in RAGAUGE_DATA.

    The name of a vector file is returned even if it does not exist. None if there is no match.
    """
    path = Path(text)
    if path.exists() or is_hdf5(path) or is_vector_file(path):
        return path
    named = os.environ.get("RAGAUGE_DATA")
    if named and path.name == text and text not in ("", ".", "..") and (Path(named) / text).is_dir():
        return Path(named) / text
    return None


def _limit_vectors(data: VectorSet, max_vectors: int | None, max_queries: int | None) -> VectorSet:
    if max_vectors is not None and max_vectors < len(data.base):
        data = replace(
            data,
            base=data.base[:max_vectors],
            ids=data.ids[:max_vectors],
            neighbours=None,
            metadata=data.metadata[:max_vectors],
        )
    if max_queries is not None and max_queries < len(data.queries):
        neighbours = None if data.neighbours is None else data.neighbours[:max_queries]
        data = replace(
            data, queries=data.queries[:max_queries], query_ids=data.query_ids[:max_queries], neighbours=neighbours
        )
    return data


def _find_base_files(folder: Path) -> list[Path]:
    """Find the files of base vectors: named `base`, else `train`, else `learn`."""
    for words in BASE_FILE_WORDS:
        if files := _find_files_by_word(folder, words):
            return files
    return []


def _find_files_by_word(folder: Path, words: Sequence[str]) -> list[Path]:
    return sorted(
        file for file in folder.iterdir() if is_vector_file(file) and set(_file_name_words(file)) & set(words)
    )


def _file_name_words(file: Path) -> list[str]:
    return re.split(r"[._-]", file.name.lower())


def _require_single_file(files: list[Path], role: str) -> Path:
    if len(files) > 1:
        names = ", ".join(file.name for file in files)
        raise BadInput(
            f"several files could be the {role}: {names}", file=str(files[0].parent), hint="keep only one of them there"
        )
    return files[0]


def _load_vector_folder(
    folder: Path, metric: str | None, max_vectors: int | None, max_queries: int | None, seed: int
) -> VectorSet:
    file, name = _require_single_file(_find_base_files(folder), "vectors"), folder.resolve().name
    neighbour_files = _find_files_by_word(folder, NEIGHBOUR_FILE_WORDS)
    metric_by_file = {
        path: next((METRIC_FILE_WORDS[word] for word in _file_name_words(path) if word in METRIC_FILE_WORDS), None)
        for path in neighbour_files
    }
    metrics = sorted({each for each in metric_by_file.values() if each})
    if metric is None and len(metrics) > 1:
        raise BadInput(
            f"found neighbours for several metrics: {', '.join(metrics)}",
            file=str(folder),
            hint=f"name one: --metric {metrics[0]}",
        )
    # Published vector sets usually omit the metric if it is the Euclidean distance.
    chosen = metric or (metrics[0] if metrics else "l2")
    fitting = [path for path in neighbour_files if metric_by_file[path] == chosen] or [
        path for path in neighbour_files if not metric_by_file[path] and chosen == "l2"
    ]
    query_files = _find_files_by_word(folder, QUERY_FILE_WORDS)
    if not query_files:
        return replace(_load_vector_file(file, chosen, max_vectors, max_queries, seed), name=name)
    base_rows, query_rows = (
        read_vectors(file, max_rows=max_vectors),
        read_vectors(_require_single_file(query_files, "queries"), max_rows=max_queries),
    )
    neighbours = None
    if fitting and max_vectors is None:
        neighbour_file = _require_single_file(fitting, "neighbours")
        neighbour_rows = read_vectors(neighbour_file, max_rows=max_queries).vectors
        if neighbour_rows.dtype.kind not in "iu" or len(neighbour_rows) != len(query_rows.vectors):
            problem = f"{len(neighbour_rows)} rows of {neighbour_rows.dtype}"
            raise BadInput(
                f"holds {problem}, not the neighbours of {len(query_rows.vectors)} queries", file=str(neighbour_file)
            )
        neighbours = neighbour_rows.astype(np.int64)
    base, vectors = _to_float32_matrix(base_rows, file), _to_float32_matrix(query_rows, query_files[0])
    if base.shape[1] != vectors.shape[1]:
        problem = f"the vectors have {base.shape[1]} dimensions, the queries {vectors.shape[1]}"
        raise BadInput(problem, file=str(folder))
    return VectorSet(name, base, vectors, chosen, neighbours, base_rows.ids, query_rows.ids)


def _load_vector_file(
    path: Path, metric: str | None, max_vectors: int | None, max_queries: int | None, seed: int
) -> VectorSet:
    """Load one file of vectors, and hold out random rows as queries."""
    rows = read_vectors(
        path,
        max_rows=None
        if max_vectors is None
        else max_vectors + (max_queries or min(MAX_HELD_OUT_QUERIES, -(-max_vectors // 9))),
    )
    count = len(rows.vectors)
    n_queries = max_queries or min(MAX_HELD_OUT_QUERIES, count // 10)
    if not 0 < n_queries < count:
        hint = "set --max-queries; by default a tenth of the rows, at most 1000, become queries"
        raise BadInput(f"has {count} rows, too few for {n_queries} queries", file=str(path), hint=hint)
    chosen = np.zeros(count, np.bool_)
    chosen[np.random.default_rng(seed).choice(count, n_queries, replace=False)] = True
    matrix = _to_float32_matrix(rows, path)
    ids = np.array(rows.ids, dtype=object)
    base_ids, query_ids = (ids[~chosen].tolist(), ids[chosen].tolist()) if len(ids) else ((), ())
    note = f"{n_queries} of {count:,} rows were held out as queries (seed {seed})"
    vector_set = VectorSet(
        InputFile(str(path)).stem,
        matrix[~chosen],
        matrix[chosen],
        metric or "l2",
        ids=base_ids,
        query_ids=query_ids,
        notes=[note],
    )
    return _limit_vectors(vector_set, max_vectors, None)


def _to_float32_matrix(rows: VectorFile, path: Path) -> Matrix:
    with np.errstate(over="ignore"):
        matrix = np.ascontiguousarray(rows.vectors, np.float32)
    if not len(matrix):
        raise BadInput("has no rows", file=str(path))
    if rows.vectors.dtype.itemsize > 4 and (row := first_bad_row(matrix)) is not None:
        raise BadInput(f"row {row} has a number out of the range of float32", file=str(path))
    return matrix


def _embed_dataset(
    dataset: Dataset,
    metric: str | None,
    embedder: str | Embedder | None,
    max_vectors: int | None,
    max_queries: int | None,
    progress: ProgressCallback,
) -> VectorSet:
    """Embed the documents and queries of a dataset; the vectors are cached."""
    documents = list(dataset.documents)[:max_vectors]
    queries = dict(list(dataset.queries.items())[:max_queries])
    if not documents or not queries:
        raise BadInput(f"{dataset.name} has no {'queries' if documents else 'documents'}")
    texts = [document.whole for document in documents]
    model = open_embedder(DEFAULT_EMBEDDER if embedder is None else embedder, texts, progress)
    base = embed_texts(model, texts, cache=cache_folder(), progress=progress).vectors
    vectors = embed_texts(model, list(queries.values()), cache=cache_folder(), progress=progress).vectors
    notes = [f"the vectors are those of {model.name}"]
    if len(documents) < len(dataset.documents):
        notes.append(f"only the first {len(documents):,} of {len(dataset.documents):,} documents are indexed")
    ids = [document.id for document in documents]
    about = [dict(document.metadata) for document in documents]
    vector_set = VectorSet(
        dataset.name, base, vectors, metric or "cosine", None, ids, list(queries), dataset.judgments, notes
    )
    return check_finite(replace(vector_set, metadata=about if any(about) else ()))


def check_finite(data: VectorSet) -> VectorSet:
    """Check that all values are finite in float32, and return the vectors unchanged."""
    for kind, rows in (("vector", data.base), ("query", data.queries)):
        if (row := first_bad_row(np.asarray(rows), np.float32)) is not None:
            raise BadInput(
                f"{data.name}: {kind} {row} has a NaN, an infinity or a number out of the range of float32",
                hint="remove it",
            )
    return data


def _finalise_vector_set(data: VectorSet) -> VectorSet:
    """Add notes on surprising data, and keep only the judgments of the queries used.

    For `cosine`, zero vectors are left out.
    """
    notes = list(data.notes)
    if data.metric == "cosine":
        base_ok: Mask = np.any(data.base, axis=1)
        query_ok: Mask = np.any(data.queries, axis=1)
        if not base_ok.any() or not query_ok.any():
            raise BadInput(f"{data.name}: all {'queries' if base_ok.any() else 'vectors'} are zeros and have no cosine")
        if not base_ok.all():
            notes.append(
                f"{_format_count_with_verb(int((~base_ok).sum()), 'vector', 'is', 'are')} all zeros: without a cosine, "
                f"left out"
            )
            ids = _select_ids(data.ids, base_ok)
            data = replace(data, base=data.base[base_ok], ids=ids, neighbours=None)
        if not query_ok.all():
            notes.append(
                f"{_format_count_with_verb(int((~query_ok).sum()), 'query', 'is', 'are')} all zeros: without a cosine, "
                f"left out"
            )
            neighbours = None if data.neighbours is None else data.neighbours[query_ok]
            data = replace(
                data,
                queries=data.queries[query_ok],
                query_ids=_select_ids(data.query_ids, query_ok),
                neighbours=neighbours,
            )
    n_duplicates, n_in_base = _count_duplicates(data.base, data.queries)
    if n_duplicates:
        notes.append(
            f"{_format_count_with_verb(n_duplicates, 'vector', 'is', 'are')} equal to an earlier one: "
            "which of them is found is arbitrary"
        )
    if n_in_base:
        notes.append(
            f"{_format_count_with_verb(n_in_base, 'query', 'is', 'are')} also in the base: rank 1 is the query itself"
        )
    return replace(data, notes=notes, judgments=_restrict_judgments(data.judgments, data.query_ids))


def _restrict_judgments(judgments: Judgments | None, query_ids: Sequence[str]) -> Judgments | None:
    """Keep only the judgments of the given queries.

    A query that is not run would otherwise count as one without results.
    """
    if judgments is None or not len(query_ids) or set(judgments.nested) <= set(query_ids):
        return judgments
    kept_ids = set(query_ids)
    return Judgments(
        {query: grades for query, grades in judgments.nested.items() if query in kept_ids},
        subtopics=judgments.subtopics
        and {query: query_subtopics for query, query_subtopics in judgments.subtopics.items() if query in kept_ids},
        targets=judgments.targets,
        distances=judgments.distances
        and {query: query_distances for query, query_distances in judgments.distances.items() if query in kept_ids},
        source=judgments.source,
    )


def _format_count_with_verb(count: int, noun: str, verb: str, verbs: str) -> str:
    plural = "queries" if noun == "query" else f"{noun}s"
    return f"{count:,} {noun} {verb}" if count == 1 else f"{count:,} {plural} {verbs}"


def _select_ids(ids: Sequence[str], mask: Mask) -> Sequence[str]:
    return [name for name, is_kept in zip(ids, mask.tolist(), strict=True) if is_kept] if len(ids) else ids


def _count_duplicates(base: Matrix, queries: Matrix) -> tuple[int, int]:
    """Count the vectors equal to an earlier one, and the queries equal to a vector."""
    marks = np.random.default_rng(0).integers(1, 1 << 63, base.shape[1], dtype=np.uint64) | np.uint64(1)

    def hashes(rows: Any) -> NDArray[np.uint64]:
        parts = [
            # Adding zero turns -0 into 0, which has other bits. High bits are mixed in, since low bits of floats are
            # often zero.
            (
                (np.asarray(block, np.float32) + np.float32(0)).view(np.uint32).astype(np.uint64) * marks
                >> np.uint64(7)
            ).sum(axis=1)
            for block in (rows[start : start + 16_384] for start in range(0, len(rows), 16_384))
        ]
        return np.concatenate(parts)

    base_hashes = hashes(base)
    order = np.argsort(base_hashes, kind="stable")
    candidates = np.flatnonzero(base_hashes[order][1:] == base_hashes[order][:-1])
    # Equal hashes are only a hint, so the rows are compared.
    n_duplicates = int((base[order[candidates]] == base[order[candidates + 1]]).all(axis=1).sum())
    sorted_hashes, query_hashes = base_hashes[order], hashes(queries)
    positions = np.minimum(np.searchsorted(sorted_hashes, query_hashes), len(base) - 1)
    same = (sorted_hashes[positions] == query_hashes) & (base[order[positions]] == queries).all(axis=1)
    return n_duplicates, int(same.sum())
