"""Corrupt Parquet files: refused with the file name before polars panics or aborts the process."""

from __future__ import annotations

import io

import polars as pl
import pytest

from ragauge.core.errors import BadInput
from ragauge.files.parquet import check_structure, read_parquet, read_parquet_columns, scan_parquet
from ragauge.files.readers import read_judgments, read_run


@pytest.fixture
def data():
    """Return the bytes of a small Parquet file with a column of texts and a column of numbers, some of them null."""
    table = pl.DataFrame({"query": [f"q{i // 5}" for i in range(40)], "score": [i or None for i in range(40)]})
    out = io.BytesIO()
    table.write_parquet(out)
    return out.getvalue()


def flip_bit(data: bytes, bit: int) -> bytes:
    return data[: bit // 8] + bytes([data[bit // 8] ^ 1 << bit % 8]) + data[bit // 8 + 1 :]


def test_read_parquet_accepts_files_of_several_writers(tmp_path, data):
    check_structure(data, "a")
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = arrow.table(
        {"a": list(range(3000)), "b": [[i] * (i % 3) for i in range(3000)], "c": ["x" * (i % 9) for i in range(3000)]}
    )
    for version in ("1.0", "2.0"):
        for compression in ("snappy", "zstd", "none"):
            parquet.write_table(
                table, tmp_path / "a.parquet", data_page_version=version, compression=compression, data_page_size=500
            )
            assert read_parquet(tmp_path / "a.parquet").height == 3000
    parquet.write_table(table.slice(0, 0), tmp_path / "empty.parquet")
    assert read_parquet(tmp_path / "empty.parquet").height == 0


def test_check_structure_flipped_bits_raise_only_bad_input(data):
    messages = set()
    for bit in range(len(data) * 8):
        try:
            check_structure(flip_bit(data, bit), "a.parquet")
        except BadInput as error:
            messages.add(error.message)
    assert any("the number of values of a page is -" in message for message in messages), (
        "no message names the negative value count that makes polars abort"
    )
    assert all(message.startswith("a.parquet: the Parquet file is corrupt or incomplete (") for message in messages)


def test_read_parquet_flipped_bits_raise_only_bad_input(data):
    refused = 0
    for bit in range(0, len(data) * 8, 7):
        try:
            read_parquet(flip_bit(data, bit), "a.parquet")
        except BadInput:
            refused += 1
    assert refused > 100


@pytest.mark.parametrize(
    "content", [b"", b"PAR1", b"PAR1PAR1", b"\xff" * 50, b"PAR1" + b"\x00" * 8 + b"\xff\xff\xff\x00PAR1"]
)
def test_read_invalid_parquet_file_raises_with_name(content, tmp_path):
    path = tmp_path / "a.parquet"
    path.write_bytes(content)
    for read in (read_parquet, read_parquet_columns, read_judgments, read_run):
        with pytest.raises(BadInput, match=r"a\.parquet"):
            read(str(path))
    with pytest.raises(BadInput, match=r"none\.parquet: cannot be read"):
        scan_parquet(tmp_path / "none.parquet")


def test_read_parquet_invalid_columns_raise_error(tmp_path, data):
    assert read_parquet(data, columns={"query": "text"}).height == 40
    for columns, message in (
        ({"doc": "text"}, "has no column `doc`; its columns: query, score"),
        ({"query": "number"}, "column `query` must hold numbers, got String"),
        ({"score": "number"}, "column `score` lacks values"),
    ):
        with pytest.raises(BadInput, match=message):
            read_parquet(data, "a.parquet", columns=columns)


@pytest.mark.parametrize("name", ["query_id", "doc_id", "score"])
def test_read_judgments_and_run_nested_column_raises_error(name, tmp_path):
    table = pl.DataFrame({"query_id": ["q"], "doc_id": ["d"], "score": [1.0]}).with_columns(
        pl.struct(pl.col(name)).alias(name)
    )
    table.write_parquet(tmp_path / "a.parquet")
    for read in (read_judgments, read_run):
        with pytest.raises(BadInput, match=f"column `{name}` must hold texts or numbers"):
            read(str(tmp_path / "a.parquet"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"q1\td1\t1\nq2\td2\t1\t0\n", "expected 3 fields, found 4"),
        (b"q1\td1\t1\nq\xff\td2\t1\n", "the line is not UTF-8"),
        (b"query-id\tcorpus-id\tscore\nq\xff\td2\t1\n", "the line is not UTF-8"),
        (b"query-id\tcorpus-id\tscore\nq2\td2\t1\t5\n", "expected 3 fields, found 4"),
    ],
)
def test_read_judgments_beir_invalid_line_raises_with_line(content, message, tmp_path):
    (tmp_path / "qrels.tsv").write_bytes(content)
    with pytest.raises(BadInput, match=rf"qrels\.tsv:2: {message}"):
        read_judgments(str(tmp_path / "qrels.tsv"), format="beir")


PARTS = pl.DataFrame({"query_id": ["q1", "q1", "q2"], "doc_id": ["a", "b", "a"], "score": [2.0, 1.0, 1.0]})


@pytest.mark.parametrize("name", ["run.parquet", "part-1.PARQUET", "query_type=x/run.Parquet", "x=1/y=2/p.parquet"])
def test_read_run_folder_reads_parts_of_any_name(tmp_path, name):
    PARTS.filter(pl.col("query_id") == "q1").write_parquet(tmp_path / "part-0.parquet")
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    rest = PARTS.filter(pl.col("query_id") == "q2")
    rest.write_parquet(tmp_path / name)
    if name == "query_type=x/run.Parquet":
        rest.with_columns(query_id=pl.lit("q3")).write_parquet(tmp_path / name)
        rest.write_parquet(tmp_path / "query_type=x" / "part-2.parquet")
    assert set(read_run(tmp_path).nested) >= {"q1", "q2"}
    assert len(read_run(tmp_path).table) == sum(pl.read_parquet(file).height for file in tmp_path.rglob("*.[pP]*"))


def test_read_run_folder_with_unread_parts_raises_with_their_folder(tmp_path):
    (tmp_path / "more").mkdir()
    PARTS.write_parquet(tmp_path / "more" / "part-1.parquet")
    with pytest.raises(BadInput, match="no run is in this folder") as error:
        read_run(tmp_path)
    assert f"there are Parquet files in {tmp_path / 'more'}" in str(error.value)
    PARTS.write_parquet(tmp_path / "part-0.parquet")
    with pytest.raises(BadInput, match=r"the Parquet files in more/ are not read"):
        read_run(tmp_path)


@pytest.mark.parametrize("ending", ["parquet", "jsonl", "csv"])
def test_read_table_with_names_that_differ_in_case_is_refused(tmp_path, ending):
    table = PARTS.with_columns(Score=-pl.col("score"))
    getattr(table, {"parquet": "write_parquet", "jsonl": "write_ndjson", "csv": "write_csv"}[ending])(
        tmp_path / f"r.{ending}"
    )
    for value in (tmp_path / f"r.{ending}", table):
        for read in (read_run, read_judgments):
            with pytest.raises(BadInput, match="duplicate column `Score`"):
                read(value)


def test_read_judgments_repeated_query_in_ground_truth_is_refused(tmp_path):
    path = tmp_path / "truth.json"
    path.write_text('{"queries": ["how?", "why?", "how? "], "ground_truth": [["1"], ["2"], ["3"]]}')
    with pytest.raises(BadInput, match="query 3 appears more than once: `how\\?`"):
        read_judgments(path)
