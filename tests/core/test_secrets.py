"""Redaction: no secret of the user appears on the terminal or in a file, in any encoding that a service uses."""

from __future__ import annotations

import base64
import gzip
import html
import json
import sqlite3
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import polars as pl
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import ragauge
from command import command_in
from ragauge.core.errors import BackendFailed, BadInput
from ragauge.core.secrets import forget_secrets, redact, redact_bytes, register_fields, register_secrets, register_url
from ragauge.core.specs import parse_spec
from ragauge.files.workspace import atomic_write
from servers import serving

TOKEN = "tok/en+4711 very=secret"


def encode_in_every_form(secret: str) -> list[str]:
    """Return a secret in every encoding in which services repeat it."""
    data = secret.encode()
    return [
        secret,
        *(base64.b64encode(data[:0] + b"x" * n + data).decode() for n in range(3)),
        base64.urlsafe_b64encode(data).decode(),
        base64.b64encode(b"me:" + data).decode(),
        quote(secret, safe=""),
        quote(secret),
        json.dumps(secret)[1:-1],
        html.escape(secret),
    ]


def encode_as_stored(secret: str) -> list[str]:
    """Return the forms of a secret that no file may contain."""
    return [secret, base64.b64encode(secret.encode()).decode()[: len(secret)], quote(secret, safe="")]


def find_files_with(folder: Path, secret: str) -> list[str]:
    """Return the names of the files that contain a secret, including the cells of tables and databases."""
    names = []
    for file in sorted(form for form in folder.rglob("*") if form.is_file()):
        text = file.read_bytes().decode("utf-8", "replace")
        if file.suffix == ".parquet":
            text = str(pl.read_parquet(file).rows())
        elif file.suffix == ".sqlite":
            database = sqlite3.connect(file)
            tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            text = str([database.execute(f"SELECT * FROM {name}").fetchall() for name in tables])
            database.close()
        names += [file.name for form in encode_as_stored(secret) if form in text]
    return names


@pytest.mark.parametrize("form", encode_in_every_form(TOKEN))
def test_redact_secret_in_any_encoding_is_removed(form):
    register_secrets(TOKEN)
    assert redact(f"before '{form}' after") == "before '[redacted]' after"


@pytest.mark.parametrize("part", ["sk-", "sk-*", "a", "\\\\", "&#0", "%"])
def test_redact_long_hostile_text_ends(part):
    register_secrets(TOKEN)
    encoded = base64.b64encode(TOKEN.encode()).decode()
    text = f"{part * 500_000} {encoded}"  # an expression in quadratic time would not end
    assert redact(text).endswith(" [redacted]")


@given(st.text(min_size=8, max_size=40), st.text(max_size=20))
def test_redact_any_secret_leaves_no_copy(secret, around):
    assume(len(secret.strip()) >= 8 and not secret.strip().isalpha() and not secret.strip().isdigit())
    assume(secret.strip() not in "[redacted]" and "\ud800" not in secret)
    forget_secrets()
    register_secrets(secret)
    stripped = secret.strip()
    text = f"{around}{stripped}{around} {base64.b64encode(stripped.encode('utf-8', 'surrogatepass')).decode()}"
    assert stripped not in redact(text)
    forget_secrets()


@pytest.mark.parametrize("key", ["test", "1234", "anything", "sk-1234", "no-key-required-here", "4111111111111111"])
def test_redact_bytes_key_that_may_be_a_word_stays_in_data(key):
    register_secrets(key)
    data = f'{{"claim": "it does not say {key} about risk-**factors** or sk-a*b"}}'.encode()
    assert redact_bytes(data) == data
    assert redact(f"401 for {key}") == "401 for [redacted]"


def test_judge_key_that_is_a_word_changes_no_data(tmp_path, chat_server):
    row = {"id": "s", "question": "Is anything said?", "answer": "It says anything.", "contexts": ["anything goes"]}
    (tmp_path / "toy.jsonl").write_text(json.dumps(row))
    run = command_in(tmp_path, OPENAI_API_KEY="anything")
    done = run("judge", "toy.jsonl", "-c", f"openai:m@{chat_server.url}", "-m", "faithfulness", "-o", "out")
    assert done.stderr.count("the key in OPENAI_API_KEY is not redacted in texts and replies") == 1
    assert find_files_with(tmp_path / "out", "[redacted]") == []
    sent = json.dumps(chat_server.requests)
    assert "anything goes" in sent
    assert "[redacted]" not in sent


def test_register_url_and_fields_take_only_secrets():
    register_url("http://me:hunter22@host/search?lang=english&api_key=abcd-efgh")
    register_fields({"X-Api-Key": "0815-4711", "Accept": "application/json", "nested": {"password": "pass-word-1"}})
    redacted = redact("english application/json hunter22 abcd-efgh 0815-4711 pass-word-1")
    assert redacted == "english application/json [redacted] [redacted] [redacted] [redacted]"


def test_errors_and_files_contain_no_registered_secret(tmp_path):
    register_secrets(TOKEN)
    assert str(BackendFailed(f"no access for {TOKEN}", hint=quote(TOKEN, safe=""))) == (
        "no access for [redacted]\nhint: [redacted]"
    )
    for name in ("a.json", "a.html", "a.csv.gz"):
        with atomic_write(str(tmp_path / name)) as out:
            for part in ("first\n", TOKEN[:9], TOKEN[9:], "\nlast"):
                out.write(part.encode())
        read = gzip.decompress if name.endswith(".gz") else bytes
        assert read((tmp_path / name).read_bytes()) == b"first\n[redacted]\nlast"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('pgvector(dsn="postgresql://me:hunter2@host/db', "pgvector(dsn=…"),
        ("pgvector(dsn='host=h password=hunter2", "pgvector(dsn=…"),
        ('qdrant(url="http://me:hunter2@host", api_key="hunter2', 'qdrant(url="http://…'),
        ("http(url=http://host, headers=hunter2 hunter2)", "http(url=http://…"),
        ("pgvector(password=hunter2,hunter2)", "pgvector(password=…"),
    ],
)
def test_parse_broken_description_does_not_show_password(text, shown):
    with pytest.raises(BadInput, match="cannot be read: expected") as caught:
        parse_spec(text)
    assert f"the system `{shown}` cannot be read" in caught.value.message
    assert "hunter2" not in str(caught.value)


def test_parse_registers_secrets_of_options():
    parse_spec('pgvector(dsn="host=h password=pass-word-1")')
    parse_spec('http(url="http://me:pass-word-2@host/search", api_key=pass-word-3)')
    assert redact("pass-word-1, pass-word-2, pass-word-3") == "[redacted], [redacted], [redacted]"


@pytest.mark.parametrize("quote", ["", '"', "'"])
@pytest.mark.parametrize(
    "uri", ["postgresql://me:pass-word-4@host:5432/db?sslmode=disable&application_name=x", "http://host/v1?api=2024=1"]
)
def test_parse_uri_with_equal_signs_is_one_value(uri, quote):
    spec = parse_spec(f"dense(store=pgvector(dsn={quote}{uri}{quote}, m=32), embedder=minilm)")
    assert spec.options["store"].options == {"dsn": uri, "m": 32}
    assert parse_spec(str(spec)) == spec
    assert parse_spec(f"all(urls={uri}+{uri})").options["urls"] == [uri, uri]
    assert "pass-word-4" not in redact(uri)


# Services that repeat the secrets they receive


@pytest.fixture
def dataset(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "corpus.jsonl").write_text('{"_id": "d1", "text": "one"}\n{"_id": "d2", "text": "two"}\n')
    (folder / "queries.jsonl").write_text('{"_id": "q1", "text": "one"}\n{"_id": "q2", "text": "two"}\n')
    (folder / "qrels").mkdir()
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\nq2\td2\t1\n")
    return folder


def echo_token(body, headers):
    """Refuse one query and answer the other; both replies contain the token in every encoding."""
    credentials = headers["Authorization"].split(" ", 1)[1]
    token = (
        base64.b64decode(credentials).decode().partition(":")[2] if "Basic" in headers["Authorization"] else credentials
    )
    if body["query"] == "one":
        return 401, {"error": encode_in_every_form(token)}
    return 200, {"hits": [{"id": form, "score": 1.0} for form in ("d2", *encode_in_every_form(token))]}


@pytest.mark.parametrize("scheme", ["bearer", "basic"])
@pytest.mark.slow
def test_run_service_repeats_token_no_file_contains_it(tmp_path, dataset, scheme):
    token = "tok-en.4711-very-secret"
    with serving(echo_token) as url:
        address = url.replace("http://", f"http://me:{token}@") if scheme == "basic" else url
        system = f'http(url="{address}"{", bearer=MY_TOKEN" if scheme == "bearer" else ""})'
        run = command_in(tmp_path, MY_TOKEN=token)
        process = run("run", dataset, "-s", f"it={system}", "-o", tmp_path / "out", "--retries", "0")
        page = run("report", tmp_path / "out", "-o", tmp_path / "out" / "report.html")
    assert find_files_with(tmp_path / "out", token) == []
    for text in (process.stdout, process.stderr, page.stdout, page.stderr):
        assert not [form for form in encode_as_stored(token) if form in text]
    assert "[redacted]" in str(pl.read_parquet(next((tmp_path / "out").rglob("timings.parquet")))["error"].to_list())


@pytest.mark.slow
def test_judge_server_repeats_key_no_file_contains_it(tmp_path, chat_server):
    key = "tok-en.4711-very-secret"
    respond = chat_server.respond

    def echo(path, headers, body):
        status, more, reply, fault = respond(path, headers, body)
        data = json.loads(reply)
        if "choices" in data:
            data["model"] = f"model {base64.b64encode(key.encode()).decode()}"
            data["choices"][0]["finish_reason"] = f"because of {key}"
            if chat_server.calls % 3 == 0:
                data["choices"][0]["message"]["content"] = "".join(f"\\u{ord(one):04x}" for one in key)
        return status, more, json.dumps(data).encode(), fault

    chat_server.respond = echo
    rows = [{"id": f"s{n}", "question": f"Q{n}?", "answer": "A. B.", "contexts": ["A."]} for n in range(6)]
    (tmp_path / "toy.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = command_in(tmp_path, OPENAI_API_KEY=key)
    chat_server.queue_faults("key_echo", times=1)
    refused = run("judge", "toy.jsonl", "-c", f"openai:m@{chat_server.url}", "-o", "refused", code=3)
    judged = run("judge", "toy.jsonl", "-c", f"openai:m@{chat_server.url}", "-m", "faithfulness", "-o", "out", code=3)
    assert find_files_with(tmp_path, key) == []
    for text in (refused.stdout, refused.stderr, judged.stdout, judged.stderr):
        assert not [one for one in encode_as_stored(key) if one in text]


def test_run_redacts_password_in_system_error(dataset, tmp_path):
    register_secrets("pass-word-4711")

    def search(query: str, k: int) -> list[str]:
        raise RuntimeError(f"no access to {query} with pass-word-4711")

    with suppress(ragauge.RagaugeError):
        ragauge.run(str(dataset), {"mine": search}, out=str(tmp_path / "out"))
    errors = pl.read_parquet(next((tmp_path / "out").rglob("timings.parquet")))["error"].to_list()
    assert errors[0] == "RuntimeError: no access to one with [redacted]"
    assert find_files_with(tmp_path / "out", "pass-word-4711") == []
