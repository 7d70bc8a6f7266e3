"""Audit of a corpus alone: each planted flaw is found, a clean corpus has none, and other checks are skipped."""

from __future__ import annotations

import json
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from command import command_in
from ragauge import Dataset, Document, Judgments, audit
from ragauge.audits import corpus_texts, languages
from ragauge.audits.checks import AUDIT_CHECKS, REMEDIES
from ragauge.core.errors import BadInput, UnknownName
from ragauge.files.serialization import to_json

WEATHER = (
    "The wind over the harbour turned to the north before noon, and the boats came home early with little to sell.",
    "Nobody in the village remembers a spring as dry as this one, when even the old well by the church ran low.",
    "A thin layer of ice covered the lake in the morning, but by the afternoon the children could swim again.",
    "The forecast promised rain for the whole week; instead the farmers cut their hay under a cloudless sky.",
)
GERMAN = "Der Wind drehte noch vor dem Mittag nach Norden, und die Boote kamen früh und fast leer in den Hafen zurück."
RUSSIAN = "Ветер над гаванью повернул на север ещё до полудня, и лодки рано вернулись домой почти пустыми."
CORPUS_CHECKS = ("duplicates", "near-duplicates", "characters", "mojibake", "token-limit", "languages")


class WordCountEmbedder:
    """Embedder that reads a number of words."""

    name = "words"

    def __init__(self, limit):
        self.limit = limit

    def embed(self, texts):
        raise NotImplementedError

    def tokens(self, texts):
        return [len(text.split()) for text in texts]


def make_documents(*texts):
    return [Document(f"d{i}", text) for i, text in enumerate(texts)]


def find_problems(*texts, **options):
    return {finding.check: finding for finding in audit(documents=make_documents(*texts), **options).problems}


def test_audit_clean_corpus_has_no_problem_and_skips_others():
    found = audit(documents=make_documents(*WEATHER), embedder=WordCountEmbedder(30))
    assert found.problems == []
    assert [finding.check for finding in found.findings] == [
        "duplicates", "near duplicates", "characters", "mojibake", "token limit", "languages",
    ]  # fmt: skip
    assert set(found.skipped) == set(AUDIT_CHECKS) - set(CORPUS_CHECKS)
    assert found.skipped["ties"] == "no run given"
    assert found.skipped["query-count"] == "no judgments given"
    assert found.notes == ["4 documents"]


PLANTED = {
    "empty documents": (" \n", "d4"),
    "duplicates": (WEATHER[0].upper(), "d0 = d4"),
    "near duplicates": (f"{WEATHER[1]} It did.", "d1 ~ d4"),
    "replacement characters": ("A text that lost its caf\ufffd on the way here.", "d4: U+FFFD in `"),
    "control characters": ("A text with a zero byte\x00 in the midst of it.", "d4: U+0000 in `"),
    "mojibake": ("A text about a schÃ¶n day, and some others.", "d4: `schÃ¶n` should be `schön`"),
    "token limit": (" ".join(["tide"] * 40), "d4: 40 tokens"),
    "languages": (GERMAN, "d4: de"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_audit_planted_flaw_is_the_only_problem(name):
    text, example = PLANTED[name]
    found = find_problems(*WEATHER, text, embedder=WordCountEmbedder(30))
    assert set(found) == {name}
    assert found[name].examples[0].startswith(example)
    assert found[name].effect
    assert found[name].remedy == REMEDIES[name]


def test_check_characters_lone_surrogate_is_replacement_character():
    found = find_problems(*WEATHER, "A text with half of an emoji \ud83d in it.")
    assert found["replacement characters"].examples[0].startswith("d4: U+D83D")


def test_check_mojibake_other_scripts_are_clean():
    assert not find_problems(GERMAN, RUSSIAN, "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", checks="mojibake")
    assert set(find_problems("Windows quotes \x93here\x94 and there", checks="mojibake")) == {"mojibake"}


def test_check_characters_with_judgments_rare_flaw_is_no_problem():
    texts = [f"{WEATHER[i % 4]} This was day {i}." for i in range(200)]
    queries = {"q": "what is it?"}

    def list_problems(n_broken):
        documents = make_documents(*texts[n_broken:], *["A broken text \ufffd."] * n_broken)
        data = Dataset("toy", documents, queries, Judgments({"q": {"d1": 1}}))
        return [finding.check for finding in audit(data, checks=["characters"]).problems]

    assert list_problems(1) == []
    assert list_problems(2) == ["replacement characters"]
    assert set(find_problems(*texts, "A broken text \ufffd.", checks="characters")) == {"replacement characters"}


def test_check_token_limit_counts_truncated_tokens():
    texts = ["one two three", "one two three four", "one two three four five", "a b c d e f g h i j"]
    finding = find_problems(*texts, embedder=WordCountEmbedder(4), checks="token-limit")["token limit"]
    assert finding.message == "2 of 4 documents (50.0%) exceed the 4-token limit of words"
    assert finding.effect.startswith("7 of 22 tokens (31.8%) are truncated")
    assert finding.examples == ("d3: 10 tokens", "d2: 5 tokens")


def test_check_token_limit_unlimited_or_uncounted_embedder():
    class UncountedEmbedder:
        name = "silent"

        def embed(self, texts):
            raise NotImplementedError

    found = audit(documents=make_documents(*WEATHER), embedder=WordCountEmbedder(None), checks="token-limit")
    assert found.findings[0].message == "words has no token limit"
    found = audit(documents=make_documents(*WEATHER), embedder=UncountedEmbedder(), checks="token-limit")
    assert found.skipped == {"token-limit": "the embedder silent does not count tokens"}
    with pytest.raises(UnknownName, match="minilm"):
        audit(documents=make_documents(*WEATHER), embedder="minilmm")


@pytest.mark.slow
def test_embedder_minilm_vectors_ignore_text_beyond_limit():
    embedder = pytest.importorskip("ragauge.models.embedders").open_embedder("minilm(tokens=16)")
    short = " ".join(["word"] * 14)
    assert embedder.limit == 16
    assert embedder.tokens([short, f"{short} more", ""]) == [16, 17, 2]
    vectors = embedder.embed([f"{short} more", f"{short} other things", " ".join(["word"] * 13)])
    assert (vectors[0] == vectors[1]).all()
    assert not (vectors[0] == vectors[2]).all()


def test_check_languages_large_corpus_checks_evenly_spaced(monkeypatch):
    monkeypatch.setattr(corpus_texts, "MAX_DOCUMENTS_IDENTIFIED", 4)
    documents = make_documents(*[text for text in (*WEATHER[:3], GERMAN) for _ in range(3)])
    finding = next(iter(audit(documents=documents, checks="languages").findings))
    assert finding.message == "1 of 4 documents checked (evenly spaced among 12) in another language than en: de (1)"
    assert finding.examples == ("d9: de",)


def test_identify_languages_short_texts_are_unknown():
    found = languages.identify_languages([*WEATHER, GERMAN, RUSSIAN, "42", "lorem"])
    assert found == ["en"] * 4 + ["de", "ru", "?", "?"]
    assert languages.identify_languages(["42", ""]) == ["?", "?"]


def test_identify_languages_quotation_keeps_main_language():
    quoting = "The German word Weltschmerz means sadness; Der schnelle braune Fuchs springt über den Hund."
    long = f"{GERMAN} {' '.join(WEATHER[1:3])}"
    mixed = f"{GERMAN} {GERMAN} {WEATHER[0]}"
    german = " ".join([GERMAN] * 4)
    found = languages.identify_languages([*WEATHER, quoting, long, mixed, f"{german} {WEATHER[0]}"])
    assert found == ["en"] * 4 + ["?", "en", "?", "de"]


def test_audit_corpus_missing_libraries_skip_checks_with_hint(monkeypatch):
    for name in ("rensa", "ftfy", "ftfy.badness", "py3langid.langid"):
        monkeypatch.setitem(sys.modules, name, None)
    languages._load_language_model.cache_clear()
    found = audit(documents=make_documents(*WEATHER, "A broken text \ufffd."), checks=CORPUS_CHECKS)
    assert set(found.skipped) == {"near-duplicates", "mojibake", "languages", "token-limit"}
    assert "[audit]'" in found.skipped["languages"]
    assert [finding.check for finding in found.problems] == ["replacement characters"]


@settings(deadline=None, max_examples=40)
@given(st.lists(st.text(max_size=80), min_size=1, max_size=6))
def test_audit_corpus_random_texts_do_not_crash(texts):
    found = audit(documents=make_documents(*texts), embedder=WordCountEmbedder(3), checks=CORPUS_CHECKS)
    assert found.skipped == {}
    assert to_json(found).encode()


@pytest.fixture
def folder(tmp_path):
    rows = [{"_id": document.id, "text": document.text} for document in make_documents(*WEATHER, "")]
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.md").write_text(WEATHER[0])
    (tmp_path / "notes" / "scan.pdf").write_text("%PDF")
    return tmp_path


@pytest.mark.parametrize("named", [True, False])
def test_audit_corpus_file_folder_and_objects(folder, named):
    for source, n in ((folder / "corpus.jsonl", 5), (folder / "notes", 1), (make_documents(*WEATHER), 4)):
        found = audit(documents=source) if named else audit(source)
        assert found.notes == ["1 document" if n == 1 else f"{n} documents"]
        assert [finding.count for finding in found.problems] == ([1] if n == 5 else [])


def test_audit_folder_of_results_is_no_corpus(folder):
    (folder / "notes" / "bm25").mkdir()
    (folder / "notes" / "bm25" / "journal.jsonl").write_text("{}\n")
    with pytest.raises(BadInput, match="no finished run found"):
        audit(folder / "notes")


def test_audit_corpus_alone_invalid_inputs_raise_error(tmp_path):
    (tmp_path / "empty.jsonl").write_text("")
    for arguments, options, message in (
        ((), {}, "no input given; expected QRELS and runs, a run folder, or a corpus"),
        ((), {"documents": []}, "no documents to audit"),
        ((), {"documents": tmp_path / "empty.jsonl"}, "no documents to audit"),
        ((tmp_path / "none.jsonl",), {}, "no such file"),
        ((), {"runs": {"q": {"a": 1.0}}, "documents": make_documents("a")}, "judgments"),
    ):
        with pytest.raises(BadInput, match=message):
            audit(*arguments, **options)


@pytest.mark.slow
def test_cli_audit_corpus_alone(folder):
    run_command = command_in(folder, "audit")
    done = run_command("corpus.jsonl")
    assert "1 problem found, 19 checks skipped." in done.stdout
    assert "! empty documents        1 of 5 documents has no text (d4)" in done.stdout
    assert run_command("--corpus", "corpus.jsonl").stdout == done.stdout
    assert run_command("corpus.jsonl", "--strict", code=1).stdout == done.stdout
    assert "scan.pdf" in run_command("notes").stderr
    refused = run_command("corpus.jsonl", "--expect", "mrr=1", code=2)
    assert "--expect has no effect without judgments" in refused.stderr


@pytest.mark.slow
def test_audit_corpus_real_collections_have_known_problems(shared):
    cranfield = audit(documents=shared("cranfield"))
    assert {finding.check: finding.examples for finding in cranfield.problems} == {"empty documents": ("471", "995")}
    adi = audit(documents=shared("adi"), embedder="minilm", checks=CORPUS_CHECKS)
    assert (adi.problems, adi.skipped) == ([], {})
