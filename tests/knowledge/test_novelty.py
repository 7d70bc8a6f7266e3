"""Novelty: values by hand and by brute force, and properties that hold for all documents."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import literal_judge
from command import run_python
from ragauge.cli.app import build_app
from ragauge.core.documents import Document
from ragauge.core.errors import BadInput, Incomparable, MissingEvidence
from ragauge.core.text import shingles, split_words
from ragauge.files.serialization import to_json
from ragauge.knowledge.novelty import chunks
from ragauge.knowledge.novelty import chunks as novelty_chunks
from ragauge.knowledge.novelty import report as novelty_report
from ragauge.knowledge.novelty.chunks import (
    MAX_OWN_CHUNKS,
    MIN_WINDOW_CHARS,
    _split_long,
    chunk_novelties,
    document_means,
    embed_chunks,
    nearest_known,
    nearest_others,
    percentile_ranks,
    shingle_overlap,
    split_documents,
)
from ragauge.knowledge.novelty.novelty import NoveltySettings, estimate_novelty_cost, novelty, prepare_novelty_data
from ragauge.models.chats.recorded import ScriptedChat
from ragauge.output.csv import render_csv
from ragauge.output.markdown import render_markdown
from ragauge.output.report import Charts
from ragauge.output.tables import Table
from ragauge.output.terminal import render_report
from ragauge.reports.registry import read_results, write_results
from ragauge.runs.texts import load_documents
from ragauge.stores.nearest_neighbours import find_nearest

DIRECTIONS = {"east": (1, 0), "north": (0, 1), "west": (-1, 0), "between": (3, 4)}


class CompassEmbedder:
    """Embedder that knows four words and ignores all others."""

    name = "compass"

    def embed(self, texts):
        return np.array([np.sum([DIRECTIONS.get(w, (0, 0)) for w in t.split()], axis=0) for t in texts], np.float32)


def make_documents(*texts, prefix="d"):
    return [Document(f"{prefix}{i}", text) for i, text in enumerate(texts)]


def list_scores(found):
    return [(one.mean, one.least, one.lexical) for one in found.documents]


def test_novelty_mean_and_least_by_hand():
    # "between" has the direction (0.6, 0.8), so its cosine with east is 0.6. Each chunk holds one of the words.
    found = novelty(
        make_documents("east between north"),
        make_documents("east", prefix="k"),
        embedder=CompassEmbedder(),
        chunk_size=8,
    )
    (one,) = found.documents
    assert one.chunks == 3
    assert [near.similarity for near in one.nearest] == pytest.approx([1.0, 0.6, 0.0])
    assert one.mean == pytest.approx((0 + 0.4 + 1) / 3)
    assert one.least == 0.0
    assert one.nearest[1].document == "k0"
    assert one.nearest[1].known_text == "east"


def test_novelty_opposite_vector_is_one():
    found = novelty(make_documents("west"), make_documents("east", prefix="k"), embedder=CompassEmbedder())
    assert found.documents[0].mean == 1.0
    assert found.documents[0].nearest[0].similarity == -1.0


def test_novelty_text_without_words_or_direction_is_nan_with_reason():
    found = novelty(
        make_documents("", "unheard of", "east"), make_documents("east", prefix="k"), embedder=CompassEmbedder()
    )
    empty, no_direction, known_copy = found.documents
    assert math.isnan(empty.mean)
    assert math.isnan(empty.lexical)
    assert empty.reason == "the text has no words"
    assert math.isnan(no_direction.least)
    assert no_direction.reason == "the embedder returns a zero vector for the text"
    assert no_direction.lexical == 1.0
    assert (known_copy.mean, known_copy.reason) == (0.0, "")
    assert "contained in a known document" in novelty_report.summarise_novelty(found)


def test_novelty_mean_ignores_chunks_without_direction():
    found = novelty(
        make_documents("mumbles between"), make_documents("east", prefix="k"), embedder=CompassEmbedder(), chunk_size=8
    )
    assert found.documents[0].chunks == 2
    assert found.documents[0].mean == pytest.approx(0.4)


def test_novelty_without_known_documents_is_one():
    found = novelty(make_documents("east", "north"), [], embedder=CompassEmbedder())
    assert list_scores(found) == [(1.0, 1.0, 1.0)] * 2
    assert math.isnan(found.documents[0].percentile)
    assert any("by definition" in note for note in found.notes)
    assert novelty_report.summarise_novelty(found) == "The mean novelty of 2 documents is 1.000."


def test_novelty_lexical_by_hand():
    known = make_documents("the cat sat on the mat", "a dog sat on the log", prefix="k")
    found = novelty(make_documents("The cat sat on the log!"), known, embedder=CompassEmbedder())
    (one,) = found.documents
    # Of its four shingles, the-cat-sat, cat-sat-on and sat-on-the are in k0, and on-the-log is in k1.
    assert one.lexical == 0.0
    assert (one.contained, one.container) == (0.75, "k0")
    assert one.state != "contained"


def test_novelty_percentiles_ignore_copies_of_known_documents():
    known = make_documents(*["east", "EAST", "between", "north"] * 8, prefix="k")
    found = novelty(make_documents("west", "east"), known, embedder=LowercasingEmbedder(CompassEmbedder()))
    # Reference values, from the cosine with the nearest document that is not a copy:
    # east and EAST: between, 0.6 -> 0.4; between: north, 0.8 -> 0.2; north: between, 0.8 -> 0.2.
    assert found.reference_values["mean"] == pytest.approx([0.2] * 16 + [0.4] * 16)
    assert (found.reference_chunks, found.reference_documents) == (32, 32)
    assert [one.percentile for one in found.documents] == [100.0, 0.0]
    assert found.reference_values["lexical"] == [1.0] * 32
    assert found.documents[0].lexical_percentile == 50.0
    assert found.notes == []


@pytest.mark.parametrize("known", [29, 30])
def test_novelty_near_requires_30_known_documents(known):
    added = make_documents("word0 word1 word2 word3 word4 other", "quite another matter")
    known_texts = [f"word{i} word{i + 1} word{i + 2} word{i + 3} word{i + 4}" for i in range(0, 3 * known, 3)]
    known_documents = make_documents(*known_texts, prefix="k")
    found = novelty([*added, Document("copy", known_documents[5].text)], known_documents, embedder="words")
    summary = " ".join(novelty_report.summarise_novelty(found).split())
    if known < 30:
        assert [one.state for one in found.documents] == ["", "", "contained"]
        assert any("they need at least 30 known documents, got 29" in note for note in found.notes)
        assert summary.endswith(", 1 is contained in a known document.")
        assert not any("Near:" in sentence for sentence in novelty_report.build_report(found).details)
    else:
        assert [one.state for one in found.documents] == ["near", "new", "contained"]
        assert summary == ("1 of 3 documents is new, 1 is near a known document, 1 is contained in a known document.")


def test_novelty_duplicate_id_raises_error():
    added, known = make_documents("east", "north"), make_documents("between", prefix="k")
    with pytest.raises(BadInput, match="new document `d0` appears more than once"):
        novelty([*added, added[0]], known, embedder=CompassEmbedder())
    with pytest.raises(BadInput, match="known document `k0` appears more than once"):
        novelty(added, [*known, *known], embedder=CompassEmbedder())


class LowercasingEmbedder:
    """Embedder that lowercases texts before another embedder."""

    def __init__(self, inner):
        self._inner = inner
        self.name = f"lowered {inner.name}"

    def embed(self, texts):
        return self._inner.embed([text.lower() for text in texts])


def test_novelty_reference_sample_is_seeded_and_has_whole_documents():
    known = make_documents(*(f"word{i} number{i % 3} half{i * i % 11}. " * 100 for i in range(30)), prefix="k")
    results = [novelty(known[:1], known[1:], embedder="words", reference_chunks=40, seed=seed) for seed in (0, 0, 1)]
    assert results[0].reference_chunks <= 40 < results[0].known_chunks
    assert results[0].reference_chunks % results[0].reference_documents == 0
    assert results[0].reference_values == results[1].reference_values
    assert results[0].reference_values != results[2].reference_values


def test_novelty_single_known_text_has_no_percentile():
    found = novelty(make_documents("north"), make_documents("east", "east", prefix="k"), embedder=CompassEmbedder())
    assert math.isnan(found.documents[0].percentile)
    assert found.documents[0].state == ""
    assert any("single text" in note for note in found.notes)


VECTOR_PAIRS = st.integers(1, 6).flatmap(
    lambda d: st.tuples(
        st.lists(st.lists(st.integers(-3, 3), min_size=d, max_size=d), min_size=1, max_size=12),
        st.lists(st.lists(st.integers(-3, 3), min_size=d, max_size=d), min_size=1, max_size=12),
    )
)


def compute_cosines(chunks, known):
    ours, theirs = np.asarray(chunks, np.float64), np.asarray(known, np.float64)
    lengths = np.linalg.norm(ours, axis=1)[:, None] * np.linalg.norm(theirs, axis=1)[None]
    return np.divide(ours @ theirs.T, lengths, out=np.zeros_like(lengths), where=lengths > 0)


@given(VECTOR_PAIRS)
@pytest.mark.slow
def test_nearest_known_matches_brute_force(vectors):
    chunks, known = (np.array(one, np.float32) for one in vectors)
    near = nearest_known(chunks, known, 3)
    expected = np.sort(compute_cosines(chunks, known), axis=1)[:, ::-1][:, :3]
    has_direction = np.any(chunks, axis=1)
    assert near.similarities[has_direction] == pytest.approx(expected[has_direction], abs=1e-12)
    assert np.isnan(near.similarities[~has_direction]).all()


@given(VECTOR_PAIRS, st.integers(1, 4))
@pytest.mark.slow
def test_nearest_others_matches_brute_force(vectors, group):
    known = np.array(vectors[0] * 3, np.float32)
    rows = np.arange(len(known))
    classes = rows // group
    own = [np.flatnonzero(classes == one) for one in classes]
    table = compute_cosines(known, known)
    table[classes[:, None] == classes[None]] = -9
    expected = np.where(np.any(known, axis=1) & (table.max(axis=1) > -9), table.max(axis=1), np.nan)
    assert nearest_others(known, rows, own) == pytest.approx(expected, abs=1e-12, nan_ok=True)


def test_nearest_known_20000_vectors_matches_brute_force():
    rng = np.random.default_rng(3)
    known = rng.standard_normal((20_000, 24)).astype(np.float32)
    chunks = np.concatenate([rng.standard_normal((300, 24)).astype(np.float32), known[:20] * 3])
    near = nearest_known(chunks, known)
    table = compute_cosines(chunks, known)
    assert near.positions[:, 0].tolist() == table.argmax(axis=1).tolist()
    assert near.similarities[:, 0] == pytest.approx(table.max(axis=1), abs=1e-12)
    assert (near.similarities[300:, 0] == 1.0).all()


def test_nearest_known_different_dimensions_raises_error():
    with pytest.raises(Incomparable, match="2 dimensions cannot be compared with known ones of 3"):
        nearest_known(np.ones((1, 2), np.float32), np.ones((1, 3), np.float32))


RANDOM_TEXTS = st.lists(st.sampled_from(["red", "green", "fox", "dog", "runs", "sleeps"]), max_size=12).map(" ".join)


@settings(max_examples=20)
@given(
    st.lists(RANDOM_TEXTS, min_size=1, max_size=4),
    st.lists(RANDOM_TEXTS, max_size=5),
    st.lists(RANDOM_TEXTS, max_size=3),
)
def test_novelty_never_rises_with_more_known_documents(new, known, more):
    added, known_documents = make_documents(*new), make_documents(*known, prefix="k")
    before = novelty(added, known_documents, embedder="words", reference_chunks=0)
    after = novelty(added, [*known_documents, *make_documents(*more, prefix="m")], embedder="words", reference_chunks=0)
    for one, other in zip(list_scores(before), list_scores(after), strict=True):
        assert all(math.isnan(b) or b <= a + 1e-12 for a, b in zip(one, other, strict=True))


@settings(max_examples=20)
@given(st.lists(RANDOM_TEXTS.filter(str.strip), min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_novelty_copies_are_zero_in_any_order(texts, random):
    known = make_documents(*texts, prefix="k")
    shuffled = random.sample(known, len(known))
    found = novelty(make_documents(*texts), shuffled, embedder="words")
    assert list_scores(found) == [(0.0, 0.0, 0.0)] * len(texts)
    assert {one.state for one in found.documents} == {"contained"}
    reversed_result = novelty(make_documents(*texts)[::-1], known, embedder="words")
    assert [one.mean for one in reversed_result.documents] == [one.mean for one in found.documents][::-1]


@given(st.lists(RANDOM_TEXTS, min_size=1, max_size=4), st.lists(RANDOM_TEXTS, max_size=6))
def test_shingle_overlap_matches_sets(new, known):
    added, known_documents = make_documents(*new), make_documents(*known, prefix="k")
    found, own = shingle_overlap(
        added, known_documents, np.arange(len(known_documents)), np.arange(len(known_documents))
    )
    sets = [shingles(text) for text in known]
    for i, text in enumerate(new):
        own_shingles = shingles(text)
        if not own_shingles:
            assert math.isnan(found.new_share[i])
            continue
        assert found.new_share[i] == pytest.approx(len(own_shingles - frozenset().union(*sets)) / len(own_shingles))
        assert found.highest_share[i] == pytest.approx(
            max([len(own_shingles & one) for one in sets], default=0) / len(own_shingles)
        )
    for i, own_shingles in enumerate(sets):
        others = frozenset().union(*(one for j, one in enumerate(sets) if j != i))
        assert own[i] == pytest.approx(
            len(own_shingles - others) / len(own_shingles) if own_shingles else math.nan, nan_ok=True
        )


@example(texts=["\u3260"], size=1)
@given(texts=st.lists(st.text(max_size=60), max_size=4), size=st.integers(1, 20))
def test_split_documents_covers_every_text_within_chunk_size(texts, size):
    given_documents = make_documents(*texts)
    found = split_documents(given_documents, size)
    covered = [set() for _ in texts]
    for number in range(len(found)):
        assert 0 < len(found.text(number)) <= size
        covered[found.owner[number]].update(range(found.start[number], found.end[number]))
    for text, positions in zip(texts, covered, strict=True):
        assert not split_words(" ".join(char for i, char in enumerate(text) if i not in positions))


def test_novelty_lone_surrogate_is_replaced():
    found = novelty(make_documents("east \ud800 north"), make_documents("east", prefix="k"), embedder=CompassEmbedder())
    assert found.documents[0].chunks == 1
    assert "\ufffd" in found.documents[0].nearest[0].text
    assert json.loads(to_json(found))["documents"][0]["chunks"] == 1


def test_embed_chunks_on_disk_equals_in_memory(monkeypatch):
    chunks = split_documents(make_documents(*(f"east {'north ' * (i % 5)}" for i in range(50))))
    in_memory = embed_chunks(chunks, CompassEmbedder())
    monkeypatch.setattr(novelty_chunks, "MAX_VECTOR_BYTES_IN_MEMORY", 10)
    on_disk = embed_chunks(chunks, CompassEmbedder())
    assert isinstance(on_disk, np.memmap)
    assert np.array_equal(in_memory, on_disk)


def test_percentile_ranks_counts_half_of_ties():
    assert percentile_ranks(np.array([0.5]), np.array([0.5, 0.5, 0.7, 0.9])).tolist() == [25.0]
    assert math.isnan(percentile_ranks(np.array([0.5]), np.zeros(0))[0])
    assert math.isnan(percentile_ranks(np.array([0.5]), np.array([math.nan]))[0])


def test_document_means_ignore_nan_chunks():
    values = chunk_novelties(np.array([0.5, 1.0, np.nan, -1.0]))
    assert document_means(values, np.array([0, 0, 0, 1]), 3)[:2] == pytest.approx([0.25, 1.0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"chunk_size": 0}, "chunk_size must be at least 1, got 0"),
        ({"chunk_overlap": 1000}, "overlap must be below the size of a chunk, got 1000"),
        ({"chunks_per_claim": 0}, "chunks_per_claim must be at least 1, got 0"),
        ({"reference_chunks": -1}, "reference_chunks must be at least 0, got -1"),
    ],
)
def test_novelty_invalid_settings_raise_error(options, message):
    with pytest.raises(BadInput, match=message):
        novelty(make_documents("east"), make_documents("east"), embedder=CompassEmbedder(), **options)


def test_novelty_invalid_embedder_output_raises_error():
    class TruncatingEmbedder(CompassEmbedder):
        def embed(self, texts):
            return super().embed(texts)[:-1]

    class NanEmbedder(CompassEmbedder):
        def embed(self, texts):
            return super().embed(texts) * np.float32(np.nan)

    for embedder, message in ((TruncatingEmbedder(), "must return one vector per text"), (NanEmbedder(), "not finite")):
        with pytest.raises(BadInput, match=message):
            novelty(make_documents("east"), make_documents("east"), embedder=embedder)
    with pytest.raises(BadInput, match="no new documents"):
        novelty([], make_documents("east"), embedder=CompassEmbedder())


KNOWN_DOCUMENTS = make_documents(
    "we found that garlic lowers blood pressure", "ships do not come in winter", prefix="k"
)


def run_with_judge(added, known=KNOWN_DOCUMENTS, **more):
    return novelty(make_documents(*added), known, embedder="words", chat=ScriptedChat(literal_judge.answer), **more)


def test_novelty_claim_states_by_hand():
    found = run_with_judge(
        ["garlic lowers blood pressure and it is cheap.", "ships do come in winter."], chunks_per_claim=2
    )
    first, second = found.documents
    assert [(one.text, one.state, one.documents) for one in first.claims] == [
        ("garlic lowers blood pressure", "known", ("k0",)),
        ("it is cheap", "new", ()),
    ]
    assert [(one.state, one.documents) for one in second.claims] == [("conflicting", ("k1",))]
    assert novelty_report.summarise_novelty(found).endswith("; of 3 claims, 1 is new, 1 is known and 1 is conflicting.")


def test_novelty_judge_finds_contradiction_between_similar_texts():
    pytest.importorskip("wordllama")

    def report_contradictions(messages, schema):
        """Reply as the literal judge does, but report unsupported claims as contradicted by k1."""
        data = json.loads(literal_judge.answer(messages, schema))
        for entry in data.get("of_answer", ()):
            if not entry["supported_by"]:
                entry["contradicted_by"] = ["k1"]
        return json.dumps(data)

    template = "A daily dose of aged garlic extract {} systolic blood pressure in adults with mild hypertension."
    known = make_documents(template.format("lowers"), prefix="k")
    found = novelty(make_documents(template.format("raises")), known, chat=ScriptedChat(report_contradictions))
    (one,) = found.documents
    assert one.nearest[0].similarity > 0.94
    assert [(claim.state, claim.documents) for claim in one.claims] == [("conflicting", ("k0",))]


def test_novelty_unreadable_judge_replies_leave_claims_unscored():
    refusing_chat = ScriptedChat(lambda messages, schema: "I would rather not.")
    found = novelty(make_documents("garlic is cheap."), KNOWN_DOCUMENTS, embedder="words", chat=refusing_chat)
    (claim,) = found.documents[0].claims
    assert claim.state == "unscored"
    assert claim.reason.startswith("its claims were not extracted")

    def refuse_support(messages, schema):
        return literal_judge.answer(messages, schema) if "List the claims" in messages[1]["content"] else "no"

    found = novelty(
        make_documents("garlic is cheap."), KNOWN_DOCUMENTS, embedder="words", chat=ScriptedChat(refuse_support)
    )
    assert [one.state for one in found.documents[0].claims] == ["unscored"]
    assert found.documents[0].claims[0].reason


def test_novelty_claims_without_known_documents_are_new():
    found = run_with_judge(["garlic is cheap."], known=[])
    assert [(one.text, one.state) for one in found.documents[0].claims] == [("garlic is cheap", "new")]


def test_novelty_replies_are_cached_and_cost_estimate_sends_no_request(tmp_path):
    requests = []

    def count_requests(messages, schema):
        requests.append(1)
        return literal_judge.answer(messages, schema)

    chat = ScriptedChat(count_requests)
    options = {"embedder": "words", "chat": chat, "folder": tmp_path / "replies"}
    estimate = estimate_novelty_cost(make_documents("garlic is cheap."), KNOWN_DOCUMENTS, **options)
    assert {one.step: one.calls for one in estimate} == {"claims": 1, "support": 1}
    assert not requests
    first = novelty(make_documents("garlic is cheap."), KNOWN_DOCUMENTS, **options)
    assert len(requests) == 2
    repeated = novelty(make_documents("garlic is cheap."), KNOWN_DOCUMENTS, **options)
    assert len(requests) == 2
    assert repeated.documents[0].claims == first.documents[0].claims
    assert estimate_novelty_cost(make_documents("garlic is cheap."), KNOWN_DOCUMENTS, **options) == []


def test_novelty_lexical_judge_costs_nothing_and_adds_note():
    found = novelty(make_documents("Garlic lowers blood pressure."), KNOWN_DOCUMENTS, embedder="words", chat="lexical")
    assert [one.state for one in found.documents[0].claims] == ["known"]
    assert any("lexical judge" in note for note in found.notes)
    assert estimate_novelty_cost(make_documents("x"), KNOWN_DOCUMENTS, embedder="words", chat="lexical") == []


def test_novelty_known_vectors_from_file(tmp_path):
    path = tmp_path / "known.npy"
    np.save(path, np.array([[0, 1], [3, 4], [1, 1]], np.float32))
    found = novelty(make_documents("east"), str(path), embedder=CompassEmbedder())
    (one,) = found.documents
    assert one.mean == pytest.approx(1 - math.sqrt(0.5))
    assert one.nearest[0].document == "row 2"
    assert math.isnan(one.lexical)
    assert found.reference_documents == 3
    assert any("file of vectors" in note for note in found.notes)
    with pytest.raises(MissingEvidence, match="compared with texts"):
        novelty(make_documents("east"), str(path), embedder=CompassEmbedder(), chat="lexical")
    np.save(path, np.ones((2, 3), np.float32))
    with pytest.raises(Incomparable, match="dimensions"):
        novelty(make_documents("east"), str(path), embedder=CompassEmbedder())


def test_prepare_novelty_data_matches_novelty():
    added, known = make_documents("east between", "north"), make_documents("east", prefix="k")
    found = prepare_novelty_data(added, known, NoveltySettings(embedder=CompassEmbedder(), chunk_size=8))
    expected = novelty(added, known, embedder=CompassEmbedder(), chunk_size=8)
    by_document = document_means(chunk_novelties(found.highest_similarity), found.chunks.owner, 2)
    assert by_document.tolist() == [one.mean for one in expected.documents]


@pytest.mark.slow
def test_cli_lists_unread_files_of_document_folder(tmp_path):
    for name in ("new", "old"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.md").write_text(f"{name} text about bees and honey")
    (tmp_path / "new" / "scan.pdf").write_text("%PDF")
    (tmp_path / "new" / ".hidden").write_text("x")
    note = "note: new: 1 file was not read (scan.pdf); only .txt, .md, .markdown, .rst files are documents"
    for arguments in (["novelty", "new", "--known", "old"], ["tokenizers", "new"]):
        done = run_python(["-m", "ragauge", *arguments], tmp_path)
        assert note in done.stderr.splitlines(), (arguments, done.stderr)
    complete = run_python(["-m", "ragauge", "novelty", "old", "--known", "old"], tmp_path)
    assert "not read" not in complete.stderr


def test_load_documents_accepts_files_folders_mappings_and_datasets(tmp_path):
    (tmp_path / "pages" / "deep").mkdir(parents=True)
    (tmp_path / "pages" / "a.txt").write_text("one")
    (tmp_path / "pages" / "deep" / "b.md").write_text("two")
    (tmp_path / "c.jsonl").write_text('{"_id": "c", "title": "T", "text": "three"}\n')
    assert [(one.id, one.text) for one in load_documents(tmp_path / "pages")] == [
        ("a.txt", "one"),
        ("deep/b.md", "two"),
    ]
    assert [one.id for one in load_documents(str(tmp_path / "pages" / "a.txt"))] == ["a.txt"]
    assert [one.whole for one in load_documents(tmp_path / "c.jsonl")] == ["T three"]
    assert load_documents([{"id": 1, "text": "four"}]) == [Document("1", "four")]
    metadata = {"links": ["b"], "year": 3}
    assert load_documents([{"_id": "a", "title": "T", "text": "five", "metadata": metadata}]) == [
        Document("a", "five", "T", metadata)
    ]
    assert load_documents([{"id": "a", "text": "six", "metadata": None}]) == [Document("a", "six")]
    with pytest.raises(BadInput, match=r"metadata of document `a` must be a mapping, got 'links'"):
        load_documents([{"id": "a", "text": "seven", "metadata": "links"}])
    assert len(load_documents("synthetic:needles(documents=50, queries=5)")) == 50
    (tmp_path / "bad.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(BadInput, match="not UTF-8"):
        load_documents(tmp_path / "bad.txt")
    with pytest.raises(BadInput, match="not a document"):
        load_documents(["text"])


def make_result():
    return run_with_judge(
        ["garlic lowers blood pressure and [bold]it[/bold] is cheap.", "ships do come in winter.", ""]
    )


def test_novelty_result_round_trip_and_other_formats(tmp_path):
    found = make_result()
    write_results([found], [str(tmp_path / f"a{ending}") for ending in (".html", ".md", ".json", ".csv", ".tex")])
    (restored,) = read_results(tmp_path / "a.json")
    assert to_json(restored) == to_json(found)
    assert (tmp_path / "a.csv").read_text().count("\n") == 4
    page, markdown = (tmp_path / "a.html").read_text(), (tmp_path / "a.md").read_text()
    for text in (page, markdown):
        assert "garlic lowers blood pressure" in text
        assert "the text has no words" in text
    rows = [line.split(",") for line in render_csv(novelty_report.build_documents_table(found)).splitlines()]
    assert rows[0][:3] == ["document", "chunks", "mean"]
    assert rows[3][:3] == ["d2", "0", ""]


def test_novelty_report_many_documents_shows_both_ends():
    result = make_result()
    many = replace(result, documents=[replace(result.documents[0], id=f"n{i}", mean=i / 100) for i in range(50)])
    report = novelty_report.build_report(many)
    tables = [block for block in report.sections[0].blocks if isinstance(block, Table)]
    assert [(len(table.rows), table.collapsed) for table in tables] == [(10, False), (10, False), (50, True)]
    assert tables[0].rows[0][0] == "n49"
    _, dropped = render_report(report, 80)
    assert "mean" not in dropped


def test_novelty_report_has_typed_cells_and_sections():
    report = novelty_report.build_report(make_result())
    assert [section.id for section in report.sections] == ["documents", "claims", "passages", "unscored"]
    table, charts = report.sections[0].blocks
    assert isinstance(charts, Charts)
    assert [column.title for column in table.columns] == [
        "document",
        "mean",
        "least",
        "words",
        "chunks",
        "state",
        "nearest",
    ]
    assert table.rows[-1][0] == "d2"
    assert math.isnan(table.rows[-1][1])
    assert "d2 | -" in render_markdown([report])


def test_novelty_chart_has_bars_for_known_and_lines_for_new_documents():
    pytest.importorskip("altair")
    known = make_documents(*(f"word{i} of many words{i % 7} here" for i in range(40)), prefix="k")
    found = novelty(make_documents("word3 of few", "something else"), known, embedder="words")
    (drawing,) = novelty_report.build_charts(found).values()
    assert len(drawing.panels) == 3
    bars, lines = drawing.panels[0].spec["layer"]
    assert sum(row["count"] for row in bars["data"]["values"]) == 40
    assert len(lines["data"]["values"]) == 2
    assert "known" in drawing.alt
    assert "each line is a new document" in drawing.caption


def test_novelty_chart_many_new_documents_are_ticks_below_bars():
    pytest.importorskip("altair")
    known = make_documents(*(f"word{i} of many words{i % 7} here" for i in range(40)), prefix="k")
    found = novelty(make_documents(*(f"word{i} of few" for i in range(30))), known, embedder="words")
    (drawing,) = novelty_report.build_charts(found).values()
    assert "each tick below the bars is a new document" in drawing.caption
    for panel in drawing.panels:
        bars, ticks = panel.spec["layer"]
        assert bars["encoding"]["y2"]["datum"] == 0
        assert max(ticks["encoding"][name]["datum"] for name in ("y", "y2")) < 0
        assert len(ticks["data"]["values"]) == 30


def test_novelty_report_sections_have_short_titles():
    found = novelty(
        make_documents("east", "north", " "), make_documents("east", prefix="k"), embedder=CompassEmbedder()
    )
    assert all(section.short[0].isupper() for section in novelty_report.build_report(found).sections)


def run_novelty(*arguments):
    return CliRunner().invoke(build_app(), ["novelty", *map(str, arguments)])


def test_cli_novelty_prints_tables_json_csv_and_dry_run(tmp_path):
    new, known = tmp_path / "new", tmp_path / "known.jsonl"
    new.mkdir()
    (new / "a.txt").write_text("Garlic lowers blood pressure.")
    (new / "b.txt").write_text("Ships sail.")
    known.write_text("".join(json.dumps({"_id": one.id, "text": one.text}) + "\n" for one in KNOWN_DOCUMENTS))
    arguments = (new, "--known", known, "--embedder", "words")
    process = run_novelty(*arguments, "--chat", "lexical", "-o", tmp_path / "a.html")
    assert process.exit_code == 0
    assert "a.txt" in process.stdout
    assert "Claims that no known document supports" in process.stdout
    assert "note: " in process.stderr
    assert (tmp_path / "a.html").is_file()
    data = json.loads(run_novelty(*arguments, "--json").stdout)
    assert data["schema"] == "ragauge-novelty/1"
    assert [one["id"] for one in data["documents"]] == ["a.txt", "b.txt"]
    assert run_novelty(*arguments, "--csv").stdout.startswith("document,chunks,mean")
    dry_run = run_novelty(*arguments, "--chat", "lexical", "--dry-run")
    assert (dry_run.exit_code, dry_run.stdout) == (0, "")
    assert "no request would be sent" in dry_run.stderr


def test_cli_novelty_invalid_input_raises_error(tmp_path):
    (tmp_path / "a.txt").write_text("text")
    process = run_novelty(tmp_path / "a.txt", "--known", "synthetic:needles", "--dry-run")
    assert isinstance(process.exception, BadInput)
    assert "no judge" in str(process.exception)
    assert isinstance(run_novelty(tmp_path / "nothing.jsonl", "--known", tmp_path / "a.txt").exception, BadInput)


@pytest.mark.slow
def test_novelty_scifact_held_out_documents_have_uniform_percentiles(shared):
    from ragauge.datasets import load

    corpus = list(load(shared("scifact")).documents)
    held_out, known = corpus[::26], [one for i, one in enumerate(corpus) if i % 26]
    found = novelty(held_out, known, embedder="words(dimensions=256)", reference_chunks=1000)
    percentiles = np.array([one.percentile for one in found.documents])
    assert 40 < np.nanmean(percentiles) < 60
    assert 0.15 < (percentiles < 25).mean() < 0.35
    copies = novelty(corpus[:5], corpus, embedder="words(dimensions=256)", reference_chunks=0)
    assert [(one.mean, one.state) for one in copies.documents] == [(0.0, "contained")] * 5


# Large documents: the work grows linearly with their size


class RecordingSplitter:
    """Splitter that records the lengths of the texts that it splits."""

    def __init__(self, splitter):
        self.splitter, self.lengths = splitter, []

    def chunk_indices(self, text):
        self.lengths.append(len(text))
        return self.splitter.chunk_indices(text)


@given(
    st.lists(st.sampled_from(["one", "two. ", "three\n", "\n\n", "four! ", "a" * 30, " ", "漢字。"]), max_size=800),
    st.sampled_from([20, 60]),
    st.sampled_from([0, 5]),
)
def test_split_long_equals_chunks_of_whole_text(words, size, overlap):
    from semantic_text_splitter import TextSplitter

    text = " ".join(words)
    splitter = RecordingSplitter(TextSplitter(size, overlap=overlap))
    assert _split_long(splitter, text, 10 * size) == splitter.splitter.chunk_indices(text)
    assert max(splitter.lengths) <= 10 * size


def test_split_documents_large_document_equals_splitter_chunks():
    from semantic_text_splitter import TextSplitter

    text = "".join(f"Sentence number {n} has some words. " for n in range(6000))
    three_documents = [Document("small", "One. Two."), Document("large", text, "A title"), Document("last", "Three.")]
    found = split_documents(three_documents)
    assert len(text) > 2 * MIN_WINDOW_CHARS
    large = [found.text(i) for i in range(len(found)) if found.name(i) == "large"]
    assert large == TextSplitter(1000).chunks(f"A title {text}")
    assert [found.text(0), found.text(len(found) - 1)] == ["One. Two.", "Three."]


def test_nearest_others_large_documents_searches_few_neighbours(monkeypatch):
    depths = []

    def record_depth(base, queries, k, metric, **more):
        depths.append(k)
        return find_nearest(base, queries, k, metric, **more)

    monkeypatch.setattr(chunks, "find_nearest", record_depth)
    known = np.random.default_rng(0).normal(size=(700, 8)).astype(np.float32)
    owner = np.repeat([0, 1, 2, 3], [400, 200, 99, 1])
    rows = np.arange(0, 700, 7)
    own = [np.flatnonzero(owner == owner[row]) for row in rows]
    unit = known.astype(np.float64) / np.linalg.norm(known.astype(np.float64), axis=1, keepdims=True)
    cosines = unit @ unit.T
    expected = [cosines[row][owner != owner[row]].max() for row in rows]
    assert nearest_others(known, rows, own) == pytest.approx(expected, abs=1e-12)
    assert max(depths) <= 2 * MAX_OWN_CHUNKS
    assert np.isnan(nearest_others(known[:400], rows[:5], [np.arange(400)] * 5)).all()
