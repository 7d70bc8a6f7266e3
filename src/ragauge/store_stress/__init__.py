"""Durability stress test of document stores (`ragauge.stress`)."""

from __future__ import annotations

import difflib
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ragauge.core import plugins
from ragauge.core.composition import parts_of
from ragauge.core.documents import Document
from ragauge.core.errors import BadInput, UnknownName
from ragauge.core.protocols import Embedder, Vectors
from ragauge.core.records import Dataset, Judgments
from ragauge.core.specs import parse
from ragauge.datasets import folders, load
from ragauge.datasets.mitre_attack import load_stix
from ragauge.evaluation import evaluate
from ragauge.files.workspace import cache_folder, temporary_folder
from ragauge.models.embedders import Cached, InPieces, open_embedder
from ragauge.runs.folder import circumstances, documents_hash, now
from ragauge.store_stress.ingestion_modes import gone
from ragauge.store_stress.minimal_failure import command, written
from ragauge.store_stress.plan import Plan, write_data
from ragauge.store_stress.result_checks import Ranking
from ragauge.store_stress.results import Broken, Ordeal, Way
from ragauge.store_stress.scenario import Course
from ragauge.stores.document_stores import check_keeper_options

Progress = Callable[[str, int, int], None]
STIX = "stix:"
"""Prefix that marks a source as a STIX bundle."""
ROWS, BUNDLES = (
    tuple(f".{kind}{packed}" for kind in kinds for packed in ("", ".gz", ".zst"))
    for kinds in (("jsonl", "tsv"), ("json",))
)
"""Name endings of document files and of STIX bundles."""
READS = (
    "documents come from a .jsonl or .tsv file, a folder as BEIR has it, a dataset by name, or a STIX bundle (.json)"
)
WORDS = 12
"""Words per query generated from a document, if the source has no queries."""


@dataclass(frozen=True)
class Load:
    """Documents and queries of a stress test, with their vectors."""

    name: str
    documents: Sequence[Document]
    vectors: Vectors
    queries: Mapping[str, str]
    asked: Vectors
    judgments: Judgments | None
    embedder: str
    typed: str
    """The embedder as the caller named it."""
    notes: list[str] = field(default_factory=list)

    @property
    def ids(self) -> list[str]:
        """Ids of the documents, in order."""
        return [one.id for one in self.documents]


def stress(
    store: str | type[Any],
    source: Any,
    *,
    embedder: str | Embedder = "wordllama",
    limit: int | None = None,
    reproducer: str | Path | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> Ordeal:
    """Stress-test a document store: fill, read back, search, reopen, and kill it.

    `store` is a document store by name (`sqlite-vec`, `pgvector(index=hnsw)`, `module:Class`) or an importable
    class. `source` is a dataset or its name, a STIX bundle, a folder, or a JSONL file of documents. A failing store
    is a result, not an exception: `broken` has its original error message, the progress made, and the shortest
    failing prefix of the documents. If `reproducer` names a folder, that prefix is written there. Other settings are
    those of `ragauge.store_stress.plan.StressSettings`: `ways`, `batch`, `k`, `queries`, `kills`, `timeout`, `seed`,
    `bisect` …
    """
    plan = _plan(settings)
    named = called(store)
    check_libraries([named])
    check_options([named])
    found = loaded(source, embedder, plan, limit=limit, progress=progress)
    return stressed(named, found, plan, reproducer=reproducer, progress=progress)


def check_libraries(stores: Sequence[str]) -> None:
    """Raise MissingExtra for stores whose libraries are not installed."""
    plugins.check_installed(("keepers", parse(store).name) for store in stores)


def check_options(stores: Sequence[str]) -> None:
    """Raise BadInput for options that a store does not have."""
    for store in stores:
        if parse(store).options:
            check_keeper_options(store)


def called(store: str | type[Any]) -> str:
    """Return the name under which any process can open a store.

    Raises UnknownName for an unknown store, and BadInput for a class that cannot be imported.
    """
    if isinstance(store, str):
        name = parse(store).name
        known = plugins.names("keepers")
        if ":" in name:
            plugins.own(name)
        elif name not in known:
            raise UnknownName("store", name, known, hint=f"there are {', '.join(known)}, and your own module:Class")
        return store
    module, name = getattr(store, "__module__", ""), getattr(store, "__qualname__", "")
    if module in ("", "__main__") or not name or "<" in name:
        raise BadInput(
            f"{store!r} cannot be imported by another process",
            hint="put the class into a module of its own, and give `module:Class`",
        )
    return f"{module}:{name}"


def _plan(settings: Mapping[str, Any]) -> Plan:
    try:
        return Plan(**settings)
    except TypeError:
        unknown = sorted(settings.keys() - Plan.__dataclass_fields__.keys())
        raise BadInput(
            f"a stress test has no setting `{unknown[0] if unknown else ''}`",
            hint=f"there are {', '.join(Plan.__dataclass_fields__)}",
        ) from None


def stressed(
    store: str,
    found: Load,
    plan: Plan,
    *,
    reproducer: str | Path | None = None,
    progress: Progress | None = None,
) -> Ordeal:
    """Stress one store with loaded data, so that several stores can share the data."""
    tell = progress or _silent
    ways: list[Way] = []
    about: dict[str, Any] = {}
    notes = list(found.notes)
    with temporary_folder("stress") as folder:
        folder.chmod(0o755)  # an engine's server may run as another user, who needs access
        write_data(folder / "data", found.documents, found.vectors, found.queries, found.asked)

        def reproduce(broken: Broken, prefix: int, said: Mapping[str, Any]) -> Broken:
            return (
                broken
                if reproducer is None
                else _reproduced(Path(reproducer), store, found, plan, broken, prefix, said)
            )

        for way in plan.ways:
            course = Course(
                store=store,
                way=way,
                plan=plan,
                data=folder / "data",
                ids=found.ids,
                vectors=found.vectors,
                asked=found.asked,
                folder=folder / "work",
                tell=tell,
            )
            outcome = gone(course, lambda rankings: scored(found, rankings, plan.k), reproduce)
            about = {**about, **outcome.about}
            ways.append(outcome.way)
            unreproduced = [_describe_unreproduced(one) for one in outcome.way.not_reproduced]
            notes += [f"{store} {way}: {note}" for note in (*outcome.notes, *unreproduced)]
    return Ordeal(
        store=store,
        documents=len(found.documents),
        queries=len(found.queries),
        ways=ways,
        about=about,
        source=found.name,
        kinds=dict(Counter(str(one.metadata.get("type") or "") for one in found.documents) - Counter([""])),
        embedder=found.embedder,
        k=plan.k,
        notes=notes,
        circumstances={
            "made": now(),
            **circumstances(),
            "documents_hash": documents_hash(found.documents),
            "seed": plan.seed,
            "batch": plan.batch,
            "commit_every": plan.commit_every,
            "kills": plan.kills,
            "kill_at": plan.kill_at,
            "timeout": plan.timeout,
        },
    )


def _describe_unreproduced(failure: Broken) -> str:
    first, _, _ = failure.error.strip().partition("\n")
    return f"failure while {failure.stage} not reproduced in {len(failure.tried)} attempts: {first}"


def _reproduced(
    folder: Path, store: str, found: Load, plan: Plan, broken: Broken, prefix: int, said: Mapping[str, Any]
) -> Broken:
    place = folder / broken.way.replace(" ", "-")
    return written(
        place,
        broken,
        found.documents[:prefix],
        found.queries,
        store=store,
        source=found.name,
        typed=command(store, str(place), broken, plan, found.typed),
        about=", ".join(f"{name} {value}" for name, value in said.items()),
    )


def loaded(
    source: Any,
    embedder: str | Embedder,
    plan: Plan,
    *,
    limit: int | None = None,
    progress: Progress | None = None,
) -> Load:
    """Load documents and queries and embed them."""
    tell = progress or _silent
    if isinstance(embedder, str):
        plugins.check_installed(parts_of("embedders", embedder))
    if limit is not None and limit < 1:
        raise BadInput(f"limit is {limit}, and 1 is the least that makes sense")
    if isinstance(source, str | Path):
        tell(f"reading {Path(str(source).removeprefix(STIX)).name}", 0, 1)
    data, judged = collection(source)
    documents = list(data.documents if limit is None else data.documents[:limit])
    if not documents:
        raise BadInput(f"{data.name} has no documents")
    if len({one.id for one in documents}) < len(documents):
        (twice, _), *_ = Counter(one.id for one in documents).most_common(1)
        raise BadInput(f"{data.name} has the id `{twice}` more than once")
    notes = [data.about] if data.about and not Path(data.about).exists() else []
    queries = dict(data.queries) if judged else _own(documents, plan)
    if not judged:
        notes.append(f"{data.name} has no queries: the first words of some documents are asked for instead")
    chosen = random.Random(plan.seed).sample(sorted(queries), min(plan.queries, len(queries)))  # noqa: S311 - a sample
    queries = {name: queries[name] for name in sorted(chosen)}
    texts = [one.whole for one in documents]
    model = open_embedder(embedder, texts, lambda done, total: tell("learning", done, total))
    cached = InPieces(Cached(model, cache_folder() / "embeddings"), lambda done, total: tell("embedding", done, total))
    vectors = cached.embed(texts)
    vectors = _replace_zero_vectors(vectors, data.name, model.name, notes)
    asked = model.embed(list(queries.values())) if queries else np.zeros((0, vectors.shape[1]), np.float32)
    nonzero = np.abs(asked).sum(axis=1) > 0
    if not nonzero.all():
        count = "1 query is" if (~nonzero).sum() == 1 else f"{(~nonzero).sum():,} queries are"
        notes.append(f"{count} not run: the embedder `{model.name}` gives an all-zero vector, which has no cosine")
        queries = {name: queries[name] for name, keep in zip(queries, nonzero, strict=True) if keep}
        asked = asked[nonzero]
    typed = embedder if isinstance(embedder, str) else model.name
    judgments = data.judgments if judged else None
    return Load(data.name, documents, vectors, queries, asked, judgments, model.name, typed, notes)


def _replace_zero_vectors(vectors: Vectors, source: str, embedder: str, notes: list[str]) -> Vectors:
    """Replace all-zero vectors by one far from the others.

    A store may reject zeros or rank them arbitrarily. Raises BadInput if all vectors are zero.
    """
    nonzero = np.abs(vectors).sum(axis=1) > 0
    if nonzero.all():
        return vectors
    if not nonzero.any():
        raise BadInput(
            f"the embedder `{embedder}` gives an all-zero vector to each of the {len(vectors):,} documents of {source}",
            hint="check the texts, or choose another --embedder, e.g. --embedder wordllama",
        )
    zeros = int((~nonzero).sum())
    count = "1 document has" if zeros == 1 else f"{zeros:,} documents have"
    notes.append(
        f"{count} an all-zero vector of the embedder `{embedder}`, replaced by one that is far from the others"
    )
    away = -vectors[nonzero].mean(axis=0, dtype=np.float64)
    away = away / np.linalg.norm(away) if np.linalg.norm(away) > 1e-6 else np.eye(1, vectors.shape[1])[0]
    return np.where(nonzero[:, None], vectors, away).astype(np.float32)


def collection(source: Any) -> tuple[Dataset, bool]:
    """Load the documents of a source, and return whether it has queries of its own."""
    if isinstance(source, Dataset):
        return source, bool(source.queries)
    if not isinstance(source, str | Path):
        return Dataset("documents", list(source), {}, Judgments({})), False
    path = Path(str(source).removeprefix(STIX))
    if str(source).startswith(STIX):
        return load_stix(path), True
    if path.is_file() and path.name.endswith(BUNDLES):
        return load_stix(path), True
    if path.is_file() and not path.name.endswith(ROWS):
        raise BadInput("is nothing that documents are read from", file=str(source), hint=READS)
    place = folders.find(path) or path
    if path.is_dir() and not (place / "qrels").exists() and not (place / "qrels.txt").exists():
        queries = folders.read_queries(path) if list(place.glob("queries.*")) else {}
        return Dataset(path.name, folders.read_documents(path), queries, Judgments({})), bool(queries)
    if path.is_file():
        return Dataset(path.name, folders.read_documents(path), {}, Judgments({})), False
    if path.name.endswith((*ROWS, *BUNDLES)):
        near = difflib.get_close_matches(path.name, _beside(path), n=3, cutoff=0.7)
        guess = f"did you mean {' or '.join(near)}?" if near else READS
        raise BadInput("no such file", file=str(source), hint=guess)
    return load(source), True


def _beside(path: Path) -> list[str]:
    """Return the names of the files next to a missing file."""
    return sorted(one.name for one in path.parent.iterdir()) if path.parent.is_dir() else []


def _own(documents: Sequence[Document], plan: Plan) -> dict[str, str]:
    """Build queries from the first words of sampled documents."""
    chance = random.Random(plan.seed)  # noqa: S311 - a sample, no secret
    some = chance.sample(range(len(documents)), min(plan.queries, len(documents)))
    texts = {place: " ".join((documents[place].title or documents[place].text).split()[:WORDS]) for place in some}
    return {f"words of {documents[place].id}": text for place, text in texts.items() if text}


def scored(found: Load, rankings: Sequence[Ranking], k: int) -> tuple[dict[str, float], int]:
    """Compute mean measures of the rankings, and the number of judged queries."""
    if found.judgments is None or not len(found.judgments):
        return {}, 0
    grades = found.judgments.nested
    here = set(found.ids)
    there = {name: _within(grades[name], here) for name in found.queries if name in grades}
    judged = {name: known for name, known in there.items() if any(grade > 0 for grade in known.values())}
    if not judged:
        return {}, 0
    # Rank by position: the store's order counts, and its tied scores must not be reordered.
    run = {
        name: {doc: float(-rank) for rank, (doc, _) in enumerate(ranking)}
        for name, ranking in zip(found.queries, rankings, strict=True)
        if name in judged
    }
    scores = evaluate(judged, run, [f"recall@{k}", f"ndcg@{k}", f"mrr@{k}"])
    return dict(scores.means), len(judged)


def _within(grades: Mapping[str, float], ids: set[str]) -> dict[str, float]:
    """Select the grades of documents that are present; `limit` may have removed some."""
    return {doc: grade for doc, grade in grades.items() if doc in ids}


def _silent(what: str, done: int, total: int) -> None:
    """Ignore progress."""
