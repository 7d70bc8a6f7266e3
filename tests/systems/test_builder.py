"""System descriptions: parsing specs, and building the systems that they describe."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import inspect
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ragauge
from ragauge.core import plugins
from ragauge.core.components import iterate_plugins
from ragauge.core.documents import Document, Hit
from ragauge.core.errors import BadInput, MissingExtra, RagaugeError, UnknownName
from ragauge.core.plugin_parameters import DocumentEmbedder, Part
from ragauge.core.protocols import Embedder, Retriever, Store, is_async
from ragauge.core.specs import Spec, parse_spec, spec_from_toml
from ragauge.files.workspace import cache_folder
from ragauge.models.embedders import CachedEmbedder
from ragauge.systems.builder import SystemBuilder
from ragauge.systems.graph_corpus import LinkedCorpus

# Parsing ----------------------------------------------------------------------------------------------------------

spec_names = st.from_regex(r"[a-z][a-z0-9_.:/-]{0,8}", fullmatch=True)
number_values = st.integers(-(10**9), 10**9) | st.floats(allow_nan=False, allow_infinity=False)
scalar_values = number_values | st.booleans() | st.text(max_size=10)


def spec_with_options(nested_specs):
    scalar = scalar_values | nested_specs
    scalar_lists = st.lists(scalar, min_size=2, max_size=3)
    return st.builds(Spec, spec_names, st.dictionaries(spec_names, scalar | scalar_lists, max_size=3))


specs = st.recursive(st.builds(Spec, spec_names), spec_with_options, max_leaves=6)


@given(specs)
def test_parse_spec_of_printed_spec_round_trips(spec):
    assert str(parse_spec(str(spec))) == str(spec)


@given(
    st.dictionaries(
        spec_names, number_values | st.booleans() | st.text(max_size=10).filter(lambda text: '"' not in text)
    )
)
def test_parse_spec_option_values_round_trip_exactly(options):
    spec = parse_spec(str(Spec("system", options)))
    if not options:
        assert spec == Spec("system")
    assert spec.options == options
    assert [type(value) for value in spec.options.values()] == [type(value) for value in options.values()]


@given(st.text(max_size=30))
def test_parse_spec_random_text_returns_spec_or_raises_bad_input(text):
    with contextlib.suppress(BadInput):
        assert isinstance(parse_spec(text), Spec)


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("bm25", {}),
        ("bm25()", {}),
        ("bm25(k1=1.2, b=.75)", {"k1": 1.2, "b": 0.75}),
        ("a(x=3, y=-4, z=1e3, w=true, v=false)", {"x": 3, "y": -4, "z": 1000.0, "w": True, "v": False}),
        ("a(x='3', y=\"true\", z='')", {"x": "3", "y": "true", "z": ""}),
        ("http(url=http://localhost:8000/search)", {"url": "http://localhost:8000/search"}),
        ("hybrid(of=dense+bm25, weights=0.7+0.3)", {"of": ["dense", "bm25"], "weights": [0.7, 0.3]}),
        ("a(of=b(c=1)+d)", {"of": [Spec("b", {"c": 1}), "d"]}),
        ("a(store=faiss(kind=hnsw, m=32))", {"store": Spec("faiss", {"kind": "hnsw", "m": 32})}),
        (" a ( x = 1 , ) ", {"x": 1}),
        ('bm25(method="bm25+")', {"method": "bm25+"}),
        ("a(x=v2, y=1.2.3, z=3d)", {"x": "v2", "y": "1.2.3", "z": "3d"}),
    ],
)
def test_parse_spec_reads_options(text, options):
    assert parse_spec(text).options == options


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "expected a name or a value, got the end"),
        ("dense(", "expected a name or a value, got the end"),
        ("dense(embedder", "expected `=`, got the end"),
        ("dense(embedder=)", "expected a name, got `)`"),
        ("dense(embedder=minilm", "expected `,`, got the end"),
        ("dense(=minilm)", "expected a name, got `=`"),
        ("dense(a=1 b=2)", "expected `,`, got `b`"),
        ("dense bm25", "expected the end, got `bm25`"),
        ("dense)", "expected the end, got `)`"),
        ("bm25+dense", "expected the end, got `+`"),
        ("(bm25)", "expected a name, got `(`"),
        ("a(b='c)", "expected a closing quote, got the end"),
        ("a(of=b+)", "expected a name, got `)`"),
        ("a(b=1, b=2)", "duplicate option `b`"),
    ],
)
def test_parse_spec_invalid_text_raises_one_line_error_with_hint(text, word):
    with pytest.raises(BadInput) as error:
        parse_spec(text)
    assert word in error.value.message
    assert f"`{text}`" in error.value.message
    assert "\n" not in error.value.message
    assert error.value.hint


def test_spec_str_keeps_late_digits_of_numbers():
    assert str(Spec("bm25", {"k1": 0.12345678})) != str(Spec("bm25", {"k1": 0.12345679}))
    assert str(Spec("a", {"x": 1e20, "y": np.float64(0.1)})) == "a(x=1e20, y=0.1)"


def test_spec_from_toml_reads_tables():
    tables = tomllib.loads(
        """
        [bm25]
        [strong]
        kind = "bm25"
        k1 = 1.2
        [short]
        kind = "dense(embedder=minilm)"
        store = {kind = "faiss", m = 32}
        [both]
        kind = "hybrid"
        of = ["strong", {kind = "dense", embedder = "minilm"}]
        weights = [0.7, 0.3]
        [json]
        kind = "filtered"
        where = {module = "json"}
        """
    )
    specs_by_name = {name: spec_from_toml(name, table) for name, table in tables.items()}
    assert specs_by_name["bm25"] == Spec("bm25")
    assert specs_by_name["strong"] == Spec("bm25", {"k1": 1.2})
    assert str(specs_by_name["short"]) == "dense(embedder=minilm, store=faiss(m=32))"
    assert str(specs_by_name["both"]) == "hybrid(of=strong+dense(embedder=minilm), weights=0.7+0.3)"
    assert specs_by_name["json"].options == {"where": {"module": "json"}}


@pytest.mark.parametrize("kind", [3, ["bm25"], "bm25(", ""])
def test_spec_from_toml_invalid_kind_raises_one_line_error(kind):
    with pytest.raises(BadInput) as error:
        spec_from_toml("mine", {"kind": kind})
    assert "\n" not in error.value.message


# Building ---------------------------------------------------------------------------------------------------------

DOCUMENTS = [
    Document("a", "sort a list of tuples", metadata={"module": "builtins"}),
    Document("b", "open a file and read lines", metadata={"module": "io"}),
    Document("c", "parse json from a file", metadata={"module": "json"}),
    Document("d", "a list of json objects", metadata={"module": "json"}),
]


def search_system(builder, system, query="json list", k=3):
    async def open_and_search():
        async with builder.open(system) as retriever:
            hits = retriever.search(query, k)
            return await hits if is_async(retriever) else hits

    return asyncio.run(open_and_search())


def ids(hits) -> list[str]:
    return [hit.id for hit in hits]


@pytest.fixture
def new_builder():
    for name in ("bm25s", "Stemmer", "wordllama"):
        pytest.importorskip(name)
    builders = []

    def make_builder(systems=None, **options):
        builders.append(SystemBuilder(DOCUMENTS, systems, **options))
        return builders[-1]

    yield make_builder
    for builder in builders:
        builder.close()


class Vowels:
    """Embedder that counts vowels and records the texts it embeds."""

    name = "vowels"

    def __init__(self):
        self.batches = []

    def embed(self, texts):
        self.batches.append(list(texts))
        return np.array([[text.count(letter) + 0.1 for letter in "aeiou"] for text in texts], np.float32)


def mine(query, k):
    return ["c", "a"]


async def awaited(query, k):
    return ["d", "b"]


@pytest.mark.parametrize(
    "description",
    [
        "bm25",
        "dense",
        "hybrid",
        "hybrid(of=bm25+dense, weights=0.7+0.3)",
        "pipeline(reranker=mmr(weight=0.7))",
        "pipeline(of=dense, reranker=embedding+mmr, depth=4)",
        "filtered(of=bm25, module=json)",
        "dense(embedder=wordllama(dimensions=64), store=exact(metric=ip))",
    ],
)
def test_system_builder_builds_and_searches_every_system_kind(new_builder, description):
    builder = new_builder()
    hits = search_system(builder, description)
    assert hits
    assert hits[0].id == "d"
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert builder.build_seconds(description) > 0
    assert search_system(builder, parse_spec(description)) == hits


def test_system_builder_resolves_names_of_other_systems(new_builder):
    systems = {
        "strong": "bm25(k1=1.5)",
        "alias": "strong",
        "both": "hybrid(of=strong+meaning)",
        "meaning": Spec("dense", {"store": Spec("exact", {"metric": "ip"})}),
        "bm25": "bm25",
        "late": "pipeline(of=both, reranker=mmr)",
    }
    builder = new_builder(systems)
    assert builder.identity("alias")["description"] == builder.identity("strong")["description"] == "bm25(k1=1.5)"
    assert builder.identity("bm25")["description"] == "bm25"
    both = "hybrid(of=bm25(k1=1.5)+dense(store=exact(metric=ip)))"
    assert builder.identity("both")["description"] == both
    assert builder.identity("late")["description"] == f"pipeline(of={both}, reranker=mmr)"
    assert search_system(builder, "both") == search_system(builder, both)
    assert ids(search_system(builder, "late"))


def test_identity_description_includes_default_parts(new_builder):
    builder = new_builder({"dense": "dense(embedder=wordllama(dimensions=64))"})
    assert builder.identity("hybrid")["description"] == "hybrid(of=dense+bm25)"
    assert builder.identity("pipeline(reranker=mmr)")["description"] == "pipeline(of=bm25, reranker=mmr)"


@pytest.mark.parametrize(
    "systems",
    [
        {"x": "pipeline(of=x, reranker=mmr)"},
        {"x": "hybrid(of=y+bm25)", "y": "pipeline(of=x, reranker=mmr)"},
        {"x": "y", "y": "x"},
        {"x": "bm25", "bm25": "hybrid(of=bm25+dense)"},
    ],
    ids=str,
)
def test_system_builder_self_reference_raises_one_line_error(new_builder, systems):
    builder = new_builder(systems)
    for call in (builder.identity, builder.build_seconds, lambda system: search_system(builder, system)):
        with pytest.raises(BadInput, match="contains itself") as error:
            call("x")
        assert "\n" not in error.value.message


def test_system_builder_accepts_callables_by_name(new_builder):
    builder = new_builder(
        {"mine": mine, "awaited": awaited, "both": "hybrid(of=mine+bm25)", "all": "hybrid(of=mine+awaited)"}
    )
    assert ids(search_system(builder, mine)) == ids(search_system(builder, "mine")) == ["c", "a"]
    assert ids(search_system(builder, "awaited")) == ["d", "b"]
    assert set(ids(search_system(builder, "both"))) == {"a", "c", "d"}
    assert set(ids(search_system(builder, "all", k=9))) == {"a", "b", "c", "d"}
    assert builder.identity(mine)["description"].endswith(".mine")
    assert builder.identity("both")["description"].endswith(".mine+bm25)")
    assert " at 0x" not in builder.identity("both")["description"], "the description must be equal in every process"
    assert builder.build_seconds("mine") == 0


def test_system_builder_accepts_reranker_and_embedder_objects(new_builder):
    def by_name(query, hits):
        return sorted(hits, key=lambda hit: hit.id)

    embedder = Vowels()
    builder = new_builder()
    assert ids(search_system(builder, Spec("pipeline", {"reranker": by_name}))) == ["a", "c", "d"]
    assert len(search_system(builder, Spec("dense", {"embedder": embedder}))) == 3
    assert embedder.batches[-1] == ["json list"]
    for options, word in (
        ({"embedder": 3}, "3 cannot be used as embedder"),
        ({"store": 3}, "3 cannot be used as store"),
    ):
        with pytest.raises(BadInput, match=word):
            search_system(builder, Spec("dense", options))
    with pytest.raises(BadInput, match="3 cannot be used as reranker"):
        search_system(builder, "pipeline(reranker=3)")


@pytest.mark.parametrize(
    ("description", "word", "hint"),
    [
        ("bm25(k=1)", "has no option `k`", "Options: k1, b, method, language"),
        ("bm25(of=dense)", "has no option `of`", "k1"),
        ("dense(embeder=minilm)", "no option `embeder`", "Options: embedder, store"),
        ("hybrid(of=bm25+dense, weights=1)", "2 retrievers needs one weight per retriever, got 1", ""),
        ("hybrid(of=bm25)", "at least two", "of="),
        ("pipeline(reranker=mmr, dept=3)", "no option `dept`", "Options: of, reranker, depth"),
        ("pipeline(reranker=mmr(wait=1))", "no option `wait`", "options: embedder, weight"),
        ("pipeline", "needs the option `reranker`", "reranker=mmr"),
        ("pipeline(of=bm25+dense, reranker=mmr)", "of must be one retriever, got 2", ""),
        ("filtered(of=bm25+dense, module=json)", "of must be one retriever, got 2", ""),
        ("dense(store=exact(metrik=ip))", "no option `metrik`", "Options: metric"),
        ("bm25(k1=high)", "k1 must be a number, got high", ""),
        ("bm25(k1=true)", "k1 must be a number, got True", ""),
        ("bm25(language=3)", "language must be a word, got 3", ""),
        ("pipeline(reranker=mmr, depth=deep)", "depth must be a number, got deep", ""),
        ("http", "needs the option `url`", "options: url"),
    ],
)
def test_system_builder_invalid_option_error_lists_valid_options(new_builder, description, word, hint):
    with pytest.raises(BadInput) as error:
        search_system(new_builder(), description)
    assert word in error.value.message
    assert "\n" not in error.value.message
    assert hint in (error.value.hint or "")


@pytest.mark.parametrize(
    ("description", "message", "hint"),
    [
        ("bm26", "unknown retriever `bm26`", "did you mean `bm25`?"),
        ("dense(embedder=minilmm)", "unknown embedder `minilmm`", "minilm"),
        ("dense(store=fais)", "unknown store `fais`", "faiss"),
        ("pipeline(reranker=mmrr)", "unknown reranker `mmrr`", "mmr"),
        ("hybrid(of=bm25+dens)", "unknown retriever `dens`", "dense"),
    ],
)
def test_system_builder_unknown_name_error_suggests_nearest_name(new_builder, description, message, hint):
    with pytest.raises(UnknownName) as error:
        search_system(new_builder(), description)
    assert error.value.message == message
    assert hint in error.value.hint


@pytest.mark.parametrize(
    ("library", "description", "extra"),
    [
        ("wordllama", "dense", "wordllama"),
        ("httpx", "http(url=http://localhost/)", "http"),
        ("openai", "pipeline(of=bm25, reranker=llm(model=m))", "openai"),
    ],
)
def test_system_builder_missing_library_error_names_install_extra(
    new_builder, monkeypatch, library, description, extra
):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingExtra) as error:
        search_system(new_builder(), description)
    assert f"[{extra}]'" in error.value.hint


def test_filtered_spec_from_toml_matches_command_line_spec(new_builder):
    builder = new_builder()
    table = spec_from_toml("json", {"kind": "filtered", "of": "bm25", "where": {"module": "json"}})
    assert search_system(builder, table) == search_system(builder, "filtered(of=bm25, module=json)")
    assert ids(search_system(builder, "filtered(of=bm25, module=json)")) == ["d", "c"]
    assert ids(search_system(builder, "filtered(of=bm25, module=json, most=1)")) == ["d"]


def test_system_builder_shared_part_is_built_once(new_builder, installed):
    created = installed["made"]
    builder = new_builder(
        {"base": "counted", "one": "pipeline(of=base, reranker=mmr)", "other": "hybrid(of=base+bm25)"}
    )
    search_system(builder, "one")
    search_system(builder, "other")
    search_system(builder, "base")
    assert len(created) == 1
    assert builder.build_seconds("one") >= builder.build_seconds("base") > 0
    assert builder.build_seconds("other") >= builder.build_seconds("base")
    builder.close()
    assert created[0].closed == 1
    search_system(builder, "base")
    assert len(created) == 2


def test_system_builder_shares_embedders_and_rerankers_but_not_stores(new_builder):
    builder = new_builder()
    parts = [builder._build_part("embedders", "wordllama") for _ in range(2)]
    assert parts[0] is parts[1]
    assert builder._build_part("rerankers", "mmr") is builder._build_part("rerankers", "mmr")
    assert builder._build_part("rerankers", "mmr") is not builder._build_part("rerankers", "mmr(weight=0.1)")
    assert builder._build_part("stores", "exact") is not builder._build_part("stores", "exact")


# Entry points -----------------------------------------------------------------------------------------------------


class CloseCounter:
    """Retriever of another package that counts how often it is closed."""

    def __init__(self, documents: Sequence[Document], *, first: int = 0, of: Sequence[Retriever] = ()):
        self.documents, self.first, self.of, self.closed = documents, first, of, 0

    def search(self, query, k):
        inner_hits = [hit for one in self.of for hit in one.search(query, k)]
        return inner_hits or [Hit(one.id, 1.0, one.text) for one in self.documents[self.first :][:k]]

    def close(self):
        self.closed += 1


class AsyncCloseCounter(CloseCounter):
    asynchronous = True

    async def search(self, query, k):
        return super().search(query, k)

    async def close(self):
        await asyncio.sleep(0)
        self.closed += 1


class WithParts:
    """Retriever of another package; the builder supplies its embedder, vector store and linked corpus."""

    def __init__(
        self,
        documents: Sequence[Document],
        embedder: Annotated[Embedder, Part("words(dimensions=64)")],
        store: Annotated[Store, Part("exact")],
        linked: Annotated[LinkedCorpus, Part()],
        document_embedder: Annotated[Embedder, DocumentEmbedder("embedder")],
        *,
        boost: float = 1.0,
    ):
        self.embedder, self.store, self.linked, self.boost = embedder, store, linked, boost
        self.document_embedder = document_embedder
        store.add([one.id for one in documents], document_embedder.embed([one.whole for one in documents]))

    def search(self, query, k):
        (ids,), (distances,) = self.store.search(self.embedder.embed([query]), k)
        scored_ids = [
            (name, 1 - float(distance)) for name, distance in zip(ids, distances, strict=True) if name is not None
        ]
        return [(name, self.boost * score) for name, score in scored_ids]


def test_plugin_class_receives_declared_parts(new_builder, installed, tmp_path):
    builder = new_builder(cache=tmp_path)
    builder.check("own(store=exact(metric=ip))")
    assert set(builder.list_plugins("own(graph=knn)")) == {
        *(("retrievers", "own"), ("embedders", "words"), ("stores", "exact"), ("graphs", "knn")),
    }
    expected = ids(search_system(builder, "dense(embedder=words(dimensions=64))"))
    assert ids(search_system(builder, "own(graph=knn, boost=2)")) == expected
    assert not builder.is_reproducible("own")
    built = builder._built["own(graph=knn, boost=2)"].owned
    assert built.linked.graph.about()
    assert built.embedder is built.linked.embedder, "one embedder for all parts"
    with pytest.raises(BadInput, match="`own` has no option `stor`") as error:
        builder.check("own(stor=exact)")
    assert error.value.hint == "did you mean `store`? Options: graph, embedder, store, boost"
    with pytest.raises(BadInput, match="no option `metrik`"):
        builder.check("own(store=exact(metrik=ip))")


def test_system_builder_caller_class_receives_declared_parts(new_builder):
    builder = new_builder({"mine": WithParts, "both": "hybrid(of=mine+bm25)"})
    assert ids(search_system(builder, "mine")) == ids(search_system(builder, "dense(embedder=words(dimensions=64))"))
    assert search_system(builder, "both")
    identity = builder.identity("mine")
    assert identity["description"] == f"{__name__}.WithParts"
    assert identity["code"]
    assert not builder.is_reproducible("mine")
    assert ("stores", "exact") in builder.list_plugins("mine")


def test_system_builder_classes_with_equal_names_are_distinct(new_builder):
    def make_class(first):
        class Local(CloseCounter):
            def __init__(self, documents: Sequence[Document]):
                super().__init__(documents, first=first)

        return Local

    builder = new_builder({"a": make_class(0), "b": make_class(1), "c": "pipeline(of=b, reranker=mmr)"})
    assert [ids(search_system(builder, name, k=1)) for name in ("a", "b")] == [["a"], ["b"]]


@pytest.fixture
def installed(monkeypatch):
    """Add entry points of a package that is not installed; `made` lists the `CloseCounter` objects that they create."""
    created = []

    class FakeEntryPoint:
        def __init__(self, group, name, factory):
            self.group, self.name, self.factory = group, name, factory

        def load(self):
            def make_retriever(documents: Sequence[Document], *, first: int = 0, of: Sequence[Retriever] = ()):
                created.append(self.factory(documents, first=first, of=of))
                return created[-1]

            return make_retriever if issubclass(self.factory, CloseCounter) else self.factory

    points = [
        FakeEntryPoint("ragauge.retrievers", "counted", CloseCounter),
        FakeEntryPoint("ragauge.retrievers", "waited", AsyncCloseCounter),
        FakeEntryPoint("ragauge.embedders", "vowels", Vowels),
        FakeEntryPoint("ragauge.retrievers", "bm25", CloseCounter),
        FakeEntryPoint("ragauge.retrievers", "own", WithParts),
    ]

    def entry_points(*, group, name=None):
        return [point for point in points if point.group == group and name in (None, point.name)]

    monkeypatch.setattr(plugins, "entry_points", entry_points)
    return {"made": created}


def test_plugins_entry_points_are_available_by_name(new_builder, installed):
    builder = new_builder()
    assert plugins.plugin_names("retrievers")[-4:] == ["counted", "waited", "bm25", "own"]
    assert ids(search_system(builder, "counted(first=1)", k=2)) == ["b", "c"]
    assert ids(search_system(builder, "counted(of=bm25)", k=1)) == ["d"], "the option `of` passes other retrievers"
    assert len(search_system(builder, "dense(embedder=vowels)")) == 3
    with pytest.raises(BadInput, match="no option `last`") as error:
        search_system(builder, "counted(last=1)")
    assert "first" in error.value.hint
    with pytest.raises(UnknownName) as unknown:
        plugins.load_plugin("retrievers", "countet")
    assert "`counted`" in unknown.value.hint


def test_load_plugin_entry_point_cannot_override_builtin_name(installed):
    from ragauge.systems.bm25 import BM25

    assert plugins.load_plugin("retrievers", "bm25") is BM25


def test_load_plugin_reads_real_entry_point(monkeypatch):
    entry_point = importlib.metadata.EntryPoint("echo", "ragauge.systems.dense:DenseRetriever", "ragauge.retrievers")
    entry_points = importlib.metadata.EntryPoints([entry_point])
    monkeypatch.setattr(plugins, "entry_points", entry_points.select)
    from ragauge.systems.dense import DenseRetriever

    assert plugins.load_plugin("retrievers", "echo") is DenseRetriever
    assert plugins.plugin_names("embedders") == list(plugins.BUILTIN_PLUGINS["embedders"])


@pytest.mark.parametrize(
    ("family", "name"),
    [(family, name) for family in plugins.BUILTIN_PLUGINS for name in plugins.BUILTIN_PLUGINS[family]],
)
def test_load_plugin_every_builtin_name_is_callable(family, name):
    assert callable(plugins.load_plugin(family, name))


# Async systems ----------------------------------------------------------------------------------------------------


def test_system_builder_async_parts_are_built_and_closed_per_use(new_builder, installed):
    created = installed["made"]
    builder = new_builder()
    for _ in range(2):
        assert ids(search_system(builder, "pipeline(of=hybrid(of=waited+bm25), reranker=mmr)", k=9))
    assert [retriever.closed for retriever in created] == [1, 1]


def test_system_builder_closing_one_system_keeps_another_open(new_builder, installed):
    created = installed["made"]
    builder = new_builder()

    async def open_nested():
        async with builder.open("waited"):
            async with builder.open("waited(first=1)") as inner:
                assert ids(await inner.search("q", 1)) == ["b"]
            return [retriever.closed for retriever in created]

    assert asyncio.run(open_nested()) == [0, 1]
    assert [retriever.closed for retriever in created] == [1, 1]


def test_system_builder_failing_part_closes_opened_parts(new_builder, installed):
    builder = new_builder()
    with pytest.raises(RagaugeError):
        search_system(builder, "hybrid(of=waited+http(url=nothing))")
    assert [retriever.closed for retriever in installed["made"]] == [1]


# Cache ------------------------------------------------------------------------------------------------------------


def test_system_builder_cache_keeps_document_vectors_but_not_queries(new_builder, tmp_path):
    embedder = Vowels()
    builder = new_builder(cache=tmp_path)
    system = Spec(
        "pipeline", {"of": Spec("dense", {"embedder": embedder}), "reranker": Spec("mmr", {"embedder": embedder})}
    )
    for _ in range(3):
        search_system(builder, system, query="json list")
    texts = [document.text for document in DOCUMENTS]
    assert embedder.batches[0] == texts
    assert embedder.batches[1:] == [["json list"]] * 6, "two embeddings per query: for the search and for the reranker"
    other = Vowels()
    search_system(new_builder(cache=tmp_path), Spec("dense", {"embedder": other}), query=texts[0])
    assert other.batches == [texts, [texts[0]]], "vectors of an embedder object must not be cached on disk"
    assert any(isinstance(one, CachedEmbedder) for caches in builder._caches.values() for one in caches)


def test_system_builder_without_cache_embeds_documents_per_part(new_builder):
    embedder = Vowels()
    builder = new_builder()
    system = Spec(
        "pipeline", {"of": Spec("dense", {"embedder": embedder}), "reranker": Spec("mmr", {"embedder": embedder})}
    )
    search_system(builder, system)
    texts = [document.text for document in DOCUMENTS]
    assert embedder.batches[:2] == [texts, texts], "one embedding per part"


def test_cache_folder_is_read_from_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("RAGAUGE_CACHE", str(tmp_path / "own"))
    assert cache_folder() == tmp_path / "own"
    monkeypatch.delenv("RAGAUGE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "ragauge"


def test_identity_description_hides_password(new_builder):
    builder = new_builder()
    description = builder.identity('http(url="http://me:secret@localhost:8000/search")')["description"]
    assert "secret" not in description
    assert "localhost:8000/search" in description


# Requirements


def test_iterate_plugins_lists_every_plugin_of_description():
    listed = set(iterate_plugins("retrievers", "hybrid(of=bm25+dense(store=faiss), weights=0.5+0.5)"))
    assert listed == {
        *(("retrievers", "hybrid"), ("retrievers", "bm25"), ("retrievers", "dense")),
        *(("embedders", "wordllama"), ("stores", "faiss")),
    }
    assert ("rerankers", "mmr") in set(
        iterate_plugins("retrievers", "pipeline(of=bm25, rerankers=mmr(embedder=words))")
    )


def test_missing_libraries_are_listed_together_before_any_work(monkeypatch, tmp_path):
    monkeypatch.setitem(plugins.REQUIRED_LIBRARIES["retrievers"], "http", ("http", "no_such_module"))
    for name in ("faiss", "usearch", "duckdb"):
        monkeypatch.setattr(plugins.load_plugin("stores", name), "library_modules", ("no_such_module",))
    absent = str(tmp_path / "absent.fvecs")
    with pytest.raises(MissingExtra) as caught:
        ragauge.bench(absent, ["exact", "faiss:kind=flat", "usearch"])
    assert caught.value.message == "the store `faiss` and the store `usearch` need optional libraries"
    assert "[faiss,usearch]" in str(caught.value.hint)
    with pytest.raises(MissingExtra, match="the retriever `http` and the store `faiss` need"):
        ragauge.run(
            "synthetic:needles(documents=20, queries=2)",
            {
                "a": "dense(embedder=words)",
                "b": "http(url=http://localhost/)",
                "c": "dense(embedder=words, store=faiss)",
            },
            out=tmp_path / "runs",
        )
    assert not (tmp_path / "runs").exists()
    with pytest.raises(MissingExtra, match="the document store `duckdb` needs"):
        ragauge.stress("duckdb", absent)


def test_required_libraries_list_every_plugin_that_raises_missing_extra():
    """Each plug-in whose module raises MissingExtra, or that has an extra, has an existing extra and a module."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"]
    for family, needs in plugins.REQUIRED_LIBRARIES.items():
        for name, (extra, *modules) in needs.items():
            assert extra in extras, (family, name)
            assert modules
    for family, table in plugins.BUILTIN_PLUGINS.items():
        for name, path in table.items():
            source = inspect.getsource(importlib.import_module(path.partition(":")[0]))
            extra, *modules = plugins.required_libraries(family, name)
            if extra or "raise MissingExtra" in source or "import_libraries" in source:
                assert extra in extras, (family, name)
                assert modules
