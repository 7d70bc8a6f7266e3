"""Lint: each planted problem is found with its place, a clean corpus has none, and no input crashes it."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ragauge
from command import command_in
from ragauge.core.documents import Document
from ragauge.core.errors import BadInput, MissingExtra, UnknownName
from ragauge.core.findings import Finding
from ragauge.files.serialization import to_json
from ragauge.knowledge.gain.snapshots import open_snapshots
from ragauge.knowledge.lint import checks, lint, lint_input, report
from ragauge.knowledge.lint.results import Lint
from ragauge.output.csv import render_csv
from ragauge.output.markdown import render_markdown
from ragauge.reports.registry import read_results, write_results

WEATHER = (
    "The wind over the harbour turned to the north before noon, and the boats came home early with little to sell.",
    "Nobody in the village remembers a spring as dry as this one, when even the old well by the church ran low.",
    "A thin layer of ice covered the lake in the morning, but by the afternoon the children could swim again.",
    "The forecast promised rain for the whole week; instead the farmers cut their hay under a cloudless sky.",
)
GERMAN = "Der Wind drehte noch vor dem Mittag nach Norden, und die Boote kamen früh und fast leer in den Hafen zurück."


def write_corpus(folder: Path, rows: list[dict[str, object] | str], name: str = "corpus.jsonl") -> str:
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8", errors="surrogatepass")
    return str(folder / name)


def make_clean_rows() -> list[dict[str, object]]:
    return [{"id": f"d{i}", "text": text} for i, text in enumerate(WEATHER)]


def find_problems(found: Lint) -> dict[str, Finding]:
    return {finding.check: finding for finding in found.problems}


@pytest.mark.slow
def test_lint_clean_corpus_has_no_problems(tmp_path):
    found = lint(write_corpus(tmp_path, make_clean_rows()), qrels={"q": {"d1": 1}}, embedder="words")
    assert found.problems == []
    assert found.skipped == {}
    assert found.documents == 4
    assert found.languages == {"en": 4}
    assert {finding.check for finding in found.findings} >= {
        "readable",
        "ids",
        "empty",
        "near duplicates",
        "tokens",
        "orphans",
    }


LONG_TEXT = " ".join(f"word{i}" for i in range(900))
HALF_SURROGATE = '{"id": "x", "text": "A text with half a character \\ud83d in the midst of it."}'
PLANTED_PROBLEMS = {
    "empty": (" \n ", "x (corpus.jsonl:5)"),
    "missing ids": ({"text": "A text that nobody has given a name to."}, "corpus.jsonl:5"),
    "duplicate ids": (
        {"id": "d1", "text": "Another text under a name that is taken."},
        "d1 (corpus.jsonl:2, corpus.jsonl:5)",
    ),
    "blanks in ids": ({"id": "d 9", "text": "A text whose name no file of TREC holds."}, "d 9 (corpus.jsonl:5)"),
    "tiny": ("Too short.", "x (corpus.jsonl:5): `Too short.`"),
    "giant": (LONG_TEXT, "x (corpus.jsonl:5): 7,089 characters"),  # 50 + 540 + 5,600 in words, 899 spaces
    "duplicates": (WEATHER[0].upper(), "d0 = x"),
    "near duplicates": (WEATHER[1].replace("church", "mill"), "d1 ~ x at 0.7"),
    "unreadable": ({"id": "x", "text": ["a", "list"]}, "corpus.jsonl:5: `text` must be a text, got a list"),
    "no text field": ({"id": "x", "words": "elsewhere"}, "corpus.jsonl:5: no text among the fields (id, words)"),
    "control characters": ("A text with a zero byte\x00 in the midst of it.", "x (corpus.jsonl:5): U+0000"),
    "replacement characters": ("A text that lost its caf\ufffd on the way here.", "x (corpus.jsonl:5): U+FFFD"),
    "lone surrogates": (json.loads(HALF_SURROGATE), "x (corpus.jsonl:5): U+D83D"),
    "invisible characters": ("A text with a space\u200bthat nobody can see.", "x (corpus.jsonl:5): U+200B"),
    "private characters": ("A text with a bullet \uf0b7 of some font in it.", "x (corpus.jsonl:5): U+F0B7"),
    "mojibake": ("A text about a schÃ¶n day, and some others.", "x (corpus.jsonl:5): `schÃ¶n` should be `schön`"),
    "markup": ("A text with <br/> and R&amp;D, as it came.", "x (corpus.jsonl:5): `<br/>`"),
    "language": (GERMAN, "x (corpus.jsonl:5), de: `Der Wind drehte"),
}


@pytest.mark.parametrize("check_name", PLANTED_PROBLEMS)
def test_lint_finds_only_the_planted_problem_with_its_place(check_name, tmp_path):
    row, location = PLANTED_PROBLEMS[check_name]
    threshold = 0.6 if check_name == "near duplicates" else 0.8
    planted = {"id": "x", "text": row} if isinstance(row, str) else row
    found = find_problems(lint(write_corpus(tmp_path, [*make_clean_rows(), planted]), near_duplicate=threshold))
    expected_too = {"no text field": {"empty"}}.get(check_name, set())
    assert set(found) == {check_name} | expected_too
    finding = found[check_name]
    assert finding.count == 1
    assert finding.remedy
    assert finding.effect
    assert finding.examples[0].startswith(location)


def test_lint_invalid_json_line_is_reported_and_others_are_read(tmp_path):
    found = lint(
        write_corpus(tmp_path, [*make_clean_rows(), '{"id": "x", "text": ', "[1]", {"id": "y", "text": GERMAN}]),
        problem_share=0.5,
    )
    finding = find_problems(found)["unreadable"]
    assert (found.documents, finding.count) == (5, 2)
    assert finding.examples[0].startswith("corpus.jsonl:5: the JSON is invalid")
    assert finding.examples[1] == "corpus.jsonl:6: expected an object"


def test_lint_invalid_utf8_is_reported_with_line(tmp_path):
    lines = [json.dumps(row).encode() for row in make_clean_rows()]
    lines.insert(2, b'{"id": "x", "text": "A caf\xe9 by the harbour, where the fishermen wait for the weather."}')
    (tmp_path / "corpus.jsonl").write_bytes(b"\n".join(lines))
    found = lint(tmp_path / "corpus.jsonl")
    assert set(find_problems(found)) == {"bytes"}
    assert find_problems(found)["bytes"].examples == ('corpus.jsonl:3: byte 0xe9 in `ext": "A café by the har`',)
    assert found.documents == 5


def test_lint_utf16_file_is_read_and_reported(tmp_path):
    text = "\n".join(json.dumps(row) for row in make_clean_rows())
    (tmp_path / "corpus.jsonl").write_bytes(text.encode("utf-16"))
    found = lint(tmp_path / "corpus.jsonl")
    assert set(find_problems(found)) == {"encoding"}
    assert found.documents == 4


def test_lint_truncated_archive_is_read_up_to_the_damage(tmp_path):
    rows = [{"id": f"d{i}", "text": f"{WEATHER[i % 4]} {i * 7919}"} for i in range(3000)]
    archive = gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode())
    (tmp_path / "corpus.jsonl.gz").write_bytes(archive[: len(archive) // 2])
    found = lint(tmp_path / "corpus.jsonl.gz", checks="readable")
    assert 500 < found.documents < 2500
    assert "ended before the end-of-stream marker" in find_problems(found)["unreadable"].examples[0]


@pytest.mark.parametrize(
    "file_format", ["tsv", "tsv with header", "csv", "csv without header", "parquet", "json", "json by id"]
)
def test_lint_every_corpus_format_gives_same_documents(file_format, tmp_path):
    rows = [("d1", WEATHER[0]), ("d2", f'{WEATHER[1]} "Quoted", too.'), ("d3", "")]
    path = tmp_path / f"corpus.{file_format.split()[0]}"
    if file_format.startswith("tsv"):
        header = "doc_id\ttext\n" if "header" in file_format else ""
        path.write_text(header + "".join(f"{name}\t{text}\n" for name, text in rows))
    elif file_format == "csv without header":
        path.write_text("".join(f'{name},"{text.replace(chr(34), chr(34) * 2)}"\n' for name, text in rows))
    elif file_format == "csv":
        pl.DataFrame(rows, schema=["id", "text"], orient="row").write_csv(path)
    elif file_format == "parquet":
        pl.DataFrame(rows, schema=["id", "contents"], orient="row").write_parquet(path)
    elif file_format == "json":
        path.write_text(json.dumps([{"_id": name, "text": text} for name, text in rows]))
    else:
        path.write_text(json.dumps(dict(rows)))
    found = lint(path)
    assert set(find_problems(found)) == {"empty"}
    assert find_problems(found)["empty"].examples[0].startswith("d3 (corpus.")
    assert found.documents == 3


def test_lint_csv_line_numbers_count_breaks_in_cells(tmp_path):
    (tmp_path / "c.csv").write_text(f'id,text\nd1,"{WEATHER[0]}\n{WEATHER[1]}"\nd2,\n')
    assert find_problems(lint(tmp_path / "c.csv"))["empty"].examples == ("d2 (c.csv:4)",)


def test_lint_reads_text_folder_and_beir_folder_with_judgments(tmp_path):
    (tmp_path / "notes" / "deep").mkdir(parents=True)
    (tmp_path / "notes" / "one.md").write_text(WEATHER[0])
    (tmp_path / "notes" / "deep" / "two.txt").write_bytes(b"\xef\xbb\xbf" + WEATHER[1].encode())
    (tmp_path / "notes" / ".hidden.md").write_text("")
    found = lint(tmp_path / "notes")
    assert found.documents == 2
    assert find_problems(found)["invisible characters"].examples[0].startswith("deep/two.txt: U+FEFF")
    (tmp_path / "beir" / "qrels").mkdir(parents=True)
    write_corpus(tmp_path / "beir", make_clean_rows())
    (tmp_path / "beir" / "qrels" / "test.tsv").write_text(
        "query-id\tcorpus-id\tscore\nq1\td1\t1\nq1\tD3\t1\nq2\td9\t0\n"
    )
    finding = find_problems(lint(tmp_path / "beir"))["orphans"]
    assert finding.count == 2
    assert "1 of them relevant" in finding.message
    assert finding.examples == ("D3 (perhaps d3)", "d9")


def test_lint_irrelevant_orphans_are_no_problem(tmp_path):
    found = lint(write_corpus(tmp_path, make_clean_rows()), qrels={"q": {"d1": 1, "gone": 0}})
    assert found.problems == []
    assert next(finding for finding in found.findings if finding.check == "orphans").count == 1


def test_lint_accepts_documents_mappings_texts_and_datasets():
    assert lint([Document("a", WEATHER[0]), Document("b", "")]).problems[0].examples == ("b (document 2)",)
    assert lint([{"id": "a", "text": WEATHER[0]}, {"id": "b"}]).documents == 2
    assert find_problems(lint([WEATHER[0], 7])).keys() == {"unreadable"}  # type: ignore[list-item]
    result = lint("synthetic:needles(documents=30, queries=3)", checks=["ids", "orphans"])
    assert (result.documents, result.problems) == (30, [])


def test_lint_tokens_counts_truncated_tokens(tmp_path):
    class FourTokenEmbedder:
        name = "four"
        limit = 4

        def embed(self, texts):
            raise NotImplementedError

        def tokens(self, texts):
            return [len(text.split()) for text in texts]

    texts = ["one two three", "one two three four", "one two three four five", "a b c d e f g h i j"]
    found = lint(texts, embedder=FourTokenEmbedder(), checks="tokens")
    assert found.lost == {"documents": 2, "tokens": 7, "of": 22}
    assert (found.embedder, found.limit) == ("four", 4)
    finding = find_problems(found)["tokens"]
    assert finding.message == "2 of 4 documents (50%) exceed the 4-token limit of four"
    assert finding.effect.startswith("7 of 22 tokens (32%) are truncated")
    assert finding.examples == ("4 (document 4): 10 tokens", "3 (document 3): 5 tokens")
    assert [row[1] for row in finding.table.rows] == [2, 1, 0, 1]


def test_lint_tokens_unlimited_or_uncounted_embedder_reports_no_loss():
    assert lint(list(WEATHER), embedder="words", checks="tokens").lost == {}

    class UncountedEmbedder:
        name = "silent"

        def embed(self, texts):
            raise NotImplementedError

    assert "does not count tokens" in lint(list(WEATHER), embedder=UncountedEmbedder()).skipped["tokens"]
    assert "--embedder" in lint(list(WEATHER)).skipped["tokens"]


@pytest.mark.slow
def test_embedder_minilm_vectors_ignore_text_beyond_limit():
    embedder = pytest.importorskip("ragauge.models.embedders").open_embedder("minilm(tokens=16)")
    short = " ".join(["word"] * 14)
    assert embedder.limit == 16
    assert embedder.tokens([short, f"{short} more", ""]) == [16, 17, 2]
    finding, other, shorter = embedder.embed([f"{short} more", f"{short} other things", " ".join(["word"] * 13)])
    assert (finding == other).all()
    assert not (finding == shorter).all()


def test_lint_tokenizer_from_file_uses_its_limit(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    found = lint(["one two three"], tokenizer=tmp_path / "tokenizer.json", token_limit=2, checks="tokens")
    assert found.lost == {"documents": 1, "tokens": 1, "of": 3}
    with pytest.raises(BadInput, match="does not state the token limit"):
        lint(["one"], tokenizer=tmp_path / "tokenizer.json")
    (tmp_path / "tokenizer_config.json").write_text('{"model_max_length": 1}')
    assert lint(["one two three"], tokenizer=tmp_path, checks="tokens").limit == 1
    (tmp_path / "broken.json").write_text("{}")
    with pytest.raises(BadInput, match="not a tokenizer"):
        lint(["one"], tokenizer=tmp_path / "broken.json", token_limit=1)


def test_identify_languages_short_texts_are_unknown():
    russian = "Ветер над гаванью повернул на север ещё до полудня, и лодки рано вернулись домой почти пустыми."
    assert lint_input.identify_languages([*WEATHER, GERMAN, russian, "42", "lorem"]) == ["en"] * 4 + [
        "de",
        "ru",
        "?",
        "?",
    ]


def test_identify_languages_quotation_keeps_main_language():
    quoting = "The German word Weltschmerz means sadness; Der schnelle braune Fuchs springt über den Hund."
    long = f"{GERMAN} {' '.join(WEATHER[1:3])}"
    mixed = f"{GERMAN} {GERMAN} {WEATHER[0]}"
    german = " ".join([GERMAN] * 4)
    found = lint_input.identify_languages([*WEATHER, quoting, long, mixed, f"{german} {WEATHER[0]}"])
    assert found == ["en"] * 4 + ["?", "en", "?", "de"]


def test_lint_allowed_languages_are_no_problem(tmp_path):
    path = write_corpus(tmp_path, [*make_clean_rows(), {"id": "x", "text": GERMAN}])
    assert lint(path, languages="en,de").problems == []
    assert find_problems(lint(path, languages=["en"], problem_share=0.5))["language"].count == 1
    assert lint(path, problem_share=0.5).problems == []
    with pytest.raises(UnknownName, match="unknown language `english`"):
        lint(path, languages="english")


def test_lint_boilerplate_finds_line_shared_by_documents():
    rows = [f"{WEATHER[i % 4]} {i}\nCopyright 2020 The Harbour Gazette, all rights reserved." for i in range(20)]
    finding = find_problems(lint(rows, checks="boilerplate"))["boilerplate"]
    assert finding.count == 20
    assert finding.examples == ("`Copyright 2020 The Harbour Gazette, all rights reserved.` in 20",)


def test_lint_joiners_are_allowed_in_persian_and_emoji():
    def list_checks(text: str) -> list[str]:
        return [finding.check for finding in lint([text], checks="characters").problems]

    assert list_checks("\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645") == []
    assert list_checks("A family \U0001f468\u200d\U0001f469\u200d\U0001f467 went out.") == []
    assert list_checks("A zero\u200cwidth joiner in a word.") == ["invisible characters"]


def test_lint_share_sets_threshold_of_problems():
    texts = [f"{WEATHER[i % 4]} And this was day number {i * 31}." for i in range(300)]
    assert lint([*texts, "short"], checks="tiny").problems == []
    assert lint([*texts, "short"], checks="tiny", problem_share=0.001).problems[0].count == 1


def test_lint_invalid_thresholds_names_and_files_raise_error(tmp_path):
    for thresholds in (
        {"problem_share": 0.0},
        {"near_duplicate": 1.5},
        {"min_chars": 50, "max_chars": 10},
        {"min_chars": -1},
        {"token_limit": 3},
        {"token_limit": 0},
    ):
        with pytest.raises(BadInput):
            lint(list(WEATHER), **thresholds)
    with pytest.raises(UnknownName, match="unknown check `emtpy`"):
        lint(list(WEATHER), checks="emtpy")
    with pytest.raises(BadInput, match="no such file"):
        lint(tmp_path / "nothing.jsonl")
    with pytest.raises(BadInput, match="no documents found"):
        lint(tmp_path)
    (tmp_path / "picture.bin").write_bytes(b"\x89PNG")
    with pytest.raises(BadInput, match="not a corpus"):
        lint(tmp_path / "picture.bin")


@pytest.mark.slow
def test_lint_and_open_snapshots_empty_file_raises_error(tmp_path):
    path = tmp_path / "none.jsonl"
    path.write_text("\n")
    with pytest.raises(BadInput, match=r"no documents in none\.jsonl"):
        lint(path)
    with pytest.raises(BadInput, match=r"no documents in .*none\.jsonl"):
        open_snapshots(path, None, [Document("a", WEATHER[0])], "pydocs")
    with pytest.raises(BadInput, match=r"no documents in .*none\.jsonl"):
        open_snapshots([Document("a", WEATHER[0])], None, path, "pydocs")


def test_lint_csv_with_other_separator_is_reported(tmp_path):
    (tmp_path / "c.csv").write_text(f'id;text\na;"{WEATHER[0]}"\nb;"{WEATHER[1]}"\n')
    found = lint(tmp_path / "c.csv")
    assert find_problems(found)["separator"].examples == ("c.csv:1: the cells are separated by `;`, not by commas",)
    assert (len(found.problems), found.documents) == (1, 2)


def test_lint_report_names_file_of_each_finding(tmp_path):
    (tmp_path / "qrels").mkdir()
    write_corpus(tmp_path, make_clean_rows())
    for name in ("test", "train"):
        (tmp_path / "qrels" / f"{name}.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\n")
    text = render_markdown([report.build_report(lint(tmp_path))])
    for name in ("test", "train"):
        assert f"- orphans ({name}.tsv): no judgment of a missing document (1 judgment)" in text


def test_lint_id_field_and_text_field_select_fields(tmp_path):
    path = write_corpus(tmp_path, [{"key": "a", "words": WEATHER[0]}, {"key": "b", "words": WEATHER[1]}])
    assert set(find_problems(lint(path))) == {"no text field", "missing ids", "empty"}
    assert lint(path, id_field="key", text_field="words").problems == []


def test_lint_missing_libraries_skip_checks_with_hint(monkeypatch):
    for name in ("rensa", "ftfy", "ftfy.badness", "py3langid.langid"):
        monkeypatch.setitem(sys.modules, name, None)
    lint_input._load_language_model.cache_clear()
    found = lint(list(WEATHER))
    assert set(found.skipped) == {"near-duplicates", "mojibake", "language", "tokens", "orphans"}
    assert "[knowledge]'" in found.skipped["language"]
    with pytest.raises(MissingExtra):
        lint(list(WEATHER), languages="en")


@pytest.mark.slow
def test_lint_result_round_trip_and_other_formats(tmp_path):
    found = lint([*WEATHER, "", GERMAN], embedder="words", qrels={"q": {"9": 1}})
    write_results([found], [str(tmp_path / f"lint.{extension}") for extension in ("html", "json", "md", "csv", "tex")])
    (restored,) = read_results(tmp_path / "lint.json")
    assert to_json(restored) == to_json(found) == (tmp_path / "lint.json").read_text()
    assert report.summarise_lint(found) == "3 problems in 6 documents: empty (1), language (1), orphans (1)."
    assert report.summarise_lint(found) in (tmp_path / "lint.md").read_text()
    page = (tmp_path / "lint.html").read_text()
    assert "characters of a document" in page
    rows = (tmp_path / "lint.csv").read_text().splitlines()
    assert len(rows) == len(found.findings) + 1


def test_lint_public_names_and_check_registry_are_consistent():
    assert ragauge.lint is lint
    assert ragauge.Lint is Lint
    for name, check in checks.LINT_CHECKS.items():
        assert check.name == name
        assert "problem" in (check.run.__doc__ or ""), name


FUZZ_SETTINGS = settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
FAST_CHECKS = [name for name in checks.LINT_CHECKS if name != "tokens"]


@FUZZ_SETTINGS
@given(data=st.binary(max_size=300), extension=st.sampled_from(["jsonl", "tsv", "csv", "json", "md"]))
def test_lint_random_bytes_do_not_crash(data, extension, tmp_path):
    folder = tmp_path / "any"
    folder.mkdir(exist_ok=True)
    (folder / f"corpus.{extension}").write_bytes(data)
    found, message = None, ""
    try:
        found = lint(folder if extension == "md" else folder / f"corpus.{extension}", checks=FAST_CHECKS)
    except BadInput as error:
        message = error.message
    finally:
        (folder / f"corpus.{extension}").unlink()
    if found is None:
        assert message == f"no documents in corpus.{extension}"
        return
    assert to_json(found).encode()
    assert render_csv(report.build_findings_table(found)).encode()
    assert found.documents or found.problems


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["id", "text", "title", "x"]), inner),
    max_leaves=8,
)


@FUZZ_SETTINGS
@given(rows=st.lists(JSON_VALUES, min_size=1, max_size=6))
@pytest.mark.slow
def test_lint_random_rows_do_not_crash(rows, tmp_path):
    (tmp_path / "corpus.jsonl").write_text("\n".join(map(json.dumps, rows)))
    found = lint(tmp_path / "corpus.jsonl", checks=FAST_CHECKS)
    assert to_json(found).encode()
    assert found.documents + len(found.problems) > 0


@pytest.mark.slow
def test_lint_real_collections_have_known_problems(shared):
    cranfield = lint(shared("cranfield"))
    assert {finding.check: finding.count for finding in cranfield.problems} == {"empty": 2}
    assert [text.split()[0] for text in find_problems(cranfield)["empty"].examples] == ["471", "995"]
    adi = lint(shared("adi"), embedder="minilm")
    assert adi.problems == []
    assert adi.skipped == {}
    arguana = find_problems(lint(shared("arguana"), checks=["duplicates", "markup", "orphans"]))
    assert {check_name: finding.count for check_name, finding in arguana.items()} == {"markup": 257, "orphans": 5}


@pytest.fixture
def run_command(tmp_path):
    """Run the command in a folder that holds a corpus with an empty document."""
    write_corpus(tmp_path, [*make_clean_rows(), {"id": "x", "text": ""}])

    return command_in(tmp_path, "lint")


@pytest.mark.slow
def test_cli_lint_exits_with_1_only_with_strict(run_command):
    done = run_command("corpus.jsonl")
    assert "1 problem in 5 documents: empty (1)." in done.stdout
    assert "x (corpus.jsonl:5)" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert run_command("corpus.jsonl", "--strict", code=1).stdout == done.stdout
    assert run_command("corpus.jsonl", "--strict", "--check", "tiny").returncode == 0


@pytest.mark.slow
def test_cli_lint_writes_json_csv_and_files(run_command, tmp_path):
    found = json.loads(run_command("corpus.jsonl", "--json").stdout)
    assert found["schema"] == "ragauge-lint/1"
    assert [finding["check"] for finding in found["findings"] if finding["problem"]] == ["empty"]
    assert run_command("corpus.jsonl", "--csv").stdout.startswith("corpus,what,problem,count,message")
    done = run_command("corpus.jsonl", "-o", "lint.html", "-o", "lint.json")
    assert done.stderr.splitlines() == ["note: wrote lint.html", "note: wrote lint.json"]
    assert (tmp_path / "lint.html").exists()
    assert "are mutually exclusive" in run_command("corpus.jsonl", "--json", "--csv", code=2).stderr
    assert run_command("corpus.jsonl", "-o", "lint.pdf", code=2).stderr


@pytest.mark.slow
def test_cli_lint_reads_stdin_and_lists_checks(run_command):
    assert "2 documents" in run_command("-", stdin="d1\tA text of some length, on a line.\nd2\t\n").stdout
    assert "near-duplicates" in run_command("--list").stdout
    assert "no corpus given" in run_command(code=2).stderr
    assert "corpus.jsonl" in run_command("corpsu.jsonl", code=2).stderr


@pytest.mark.slow
def test_cli_lint_escapes_markup_and_control_characters(run_command, tmp_path):
    write_corpus(tmp_path, [*make_clean_rows(), {"id": "[red]x[/red]\x1b[31m", "text": "[bold]hi[/bold]"}], "odd.jsonl")
    done = run_command("odd.jsonl")
    assert "[red]x[/red]" in done.stdout
    assert "[bold]hi[/bold]" in done.stdout
    assert "\x1b" not in done.stdout


def test_lint_folder_lists_files_that_were_not_read(tmp_path):
    (tmp_path / "kb" / "sub").mkdir(parents=True)
    (tmp_path / "kb" / ".git").mkdir()
    for i in range(4):
        (tmp_path / "kb" / f"d{i}.md").write_text(f"Document number {i} has a text about topic number {i} and more.\n")
    for name in ("a.pdf", "sub/b.docx", "sub/LICENSE", ".git/config"):
        (tmp_path / "kb" / name).write_text("x")
    found = lint(tmp_path / "kb")
    (finding,) = [finding for finding in found.problems if finding.check == "unread files"]
    assert finding.message == "3 files of the folder were not read (1 .pdf, 1 without an ending, 1 .docx)"
    assert list(finding.examples) == ["a.pdf", "sub/LICENSE", "sub/b.docx"]
    assert found.documents == 4
