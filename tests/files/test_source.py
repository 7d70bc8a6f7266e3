"""Input files: limits on the length of lines and on decompressed sizes."""

from __future__ import annotations

import gzip

import pytest
import zstandard

from command import command_in
from ragauge.core.errors import BadInput
from ragauge.core.limits import DECOMPRESSED_LIMIT, LINE_LIMIT
from ragauge.files.source import InputFile
from ragauge.files.vectors import read_vectors


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_input_file_decompressed_above_limit_raises_error(tmp_path, monkeypatch, pack):
    monkeypatch.setenv(DECOMPRESSED_LIMIT.variable, "1")
    bomb = tmp_path / "bomb.jsonl"
    bomb.write_bytes(pack(b'{"a": 1}\n' * 1_000_000))
    with pytest.raises(BadInput, match="decompresses to more than 1 MB and 100 times its size") as caught:
        InputFile(str(bomb)).read()
    assert caught.value.file == str(bomb)
    assert caught.value.hint.endswith("export RAGAUGE_MAX_DECOMPRESSED_MB=4")
    monkeypatch.setenv(DECOMPRESSED_LIMIT.variable, "20")
    assert len(InputFile(str(bomb)).read()) == 9_000_000


def test_read_vectors_decompressed_above_limit_raises_error(tmp_path, monkeypatch):
    monkeypatch.setenv(DECOMPRESSED_LIMIT.variable, "1")
    bomb = tmp_path / "bomb.u8bin.gz"
    bomb.write_bytes(gzip.compress((50_000).to_bytes(4, "little") + (100).to_bytes(4, "little") + bytes(5_000_000)))
    with pytest.raises(BadInput, match="decompresses to more than 1 MB"):
        read_vectors(bomb)


def test_input_file_normal_compression_ratio_is_not_limited(tmp_path, monkeypatch):
    monkeypatch.setenv(DECOMPRESSED_LIMIT.variable, "0.01")
    path = tmp_path / "a.run.gz"
    lines = b"".join(b"q%d Q0 d%d 1 %f x\n" % (n, n * 7919 % 10007, 1 / (n + 1)) for n in range(20_000))
    path.write_bytes(gzip.compress(lines))
    assert InputFile(str(path)).read() == lines


@pytest.mark.parametrize("name", ["a.run", "a.run.gz", "a.run.zst"])
@pytest.mark.slow
def test_input_file_line_above_limit_raises_error(tmp_path, monkeypatch, name):
    monkeypatch.setenv(LINE_LIMIT.variable, "1")
    path = tmp_path / name
    pack = {".gz": gzip.compress, ".zst": zstandard.compress}.get(path.suffix, bytes)
    path.write_bytes(pack(b"q1 Q0 d1 1 1.0 x\n" + b"x" * 40_000_000))
    with pytest.raises(BadInput, match="a line is longer than 1 MB"):
        list(InputFile(str(path)).blocks(1000))
    with InputFile(str(path)).open() as file, pytest.raises(BadInput, match="a line is longer than 1 MB"):
        list(file)


def test_input_file_lines_up_to_limit_are_read(tmp_path, monkeypatch):
    monkeypatch.setenv(LINE_LIMIT.variable, "0.001")
    path = tmp_path / "a.txt"
    path.write_bytes(b"x" * 999 + b"\n" + b"y" * 999)
    with InputFile(str(path)).open() as file:
        assert [len(line) for line in file] == [1000, 999]
    assert b"".join(InputFile(str(path)).blocks(10)) == path.read_bytes() + b"\n"


def test_cli_evaluate_gzip_bomb_prints_one_line_error(tmp_path):
    (tmp_path / "qrels").write_text("q1 0 d1 1\n")
    (tmp_path / "bomb.run.gz").write_bytes(gzip.compress(b"q1 Q0 d1 1 1.0 x\n" * 500_000))
    run = command_in(tmp_path, RAGAUGE_MAX_DECOMPRESSED_MB="1")
    process = run("evaluate", "qrels", "bomb.run.gz", code=2)
    assert process.stderr.splitlines()[0] == (
        "error: bomb.run.gz: decompresses to more than 1 MB and 100 times its size"
    )
