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
