"""Input files: a path or `-` for standard input, plain, .gz or .zst, read as blocks of whole lines."""

from __future__ import annotations

import difflib
import functools
import gzip
import io
import itertools
import os
import sys
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeVar

from ragauge.core.errors import BadInput, MissingExtra, RagaugeError, error_summary
from ragauge.core.limits import BYTES_PER_MB, DECOMPRESSED_LIMIT, LINE_LIMIT, MAX_DECOMPRESSION_RATIO

ZSTD_READ_BYTES = 1 << 13
"""Bytes per read of a .zst file. Even a malicious file decompresses to at most 32,768 times this size per read."""
BLOCK_BYTES = 16 << 20
"""Bytes per block: large enough for fast parsing, small enough for the CPU cache and for bounded memory."""
PARSER_THREADS = min(4, os.cpu_count() or 2)
"""Number of blocks that are parsed at a time, in addition to the one being scored."""

B = TypeVar("B")
T = TypeVar("T")


class TruncatedFile(BadInput):
    """A file that is truncated or corrupt."""


@dataclass(frozen=True)
class InputFile:
    """A file that can be read more than once; standard input and pipes are cached in memory."""

    path: str

    @property
    def label(self) -> str:
        """Name of the file in messages."""
        return "<stdin>" if self.path == "-" else self.path

    @property
    def stem(self) -> str:
        """Name without compression and format endings, or the name of a folder.

        The stem of `runs/bm25.trec.gz` is `bm25`.
        """
        if self.path == "-":
            return "stdin"
        if Path(self.path).is_dir():
            return Path(self.path).resolve().name
        if Path(self.path).name == "run.parquet" and Path(self.path).with_name("manifest.json").exists():
            return Path(self.path).resolve().parent.name  # a run folder has the more informative name
        name = Path(self.path).name
        for ending in (".gz", ".zst"):
            name = name.removesuffix(ending)
        return Path(name).stem or name

    @property
    def ending(self) -> str:
        """Ending of the format, in lower case and without compression, or empty."""
        name = self.path.lower().removesuffix(".gz").removesuffix(".zst")
        return Path(name).suffix

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """Open the decompressed bytes, without a byte order mark."""
        try:
            with self._open_raw() as raw:
                magic = raw.peek(4)[:4]
                if magic[:2] == b"\x1f\x8b":
                    with gzip.open(raw) as unzipped:
                        yield _skip_byte_order_mark(
                            LineReader(BoundedReader(unzipped.readinto, raw, self.label), self.label)
                        )
                elif magic == b"\x28\xb5\x2f\xfd":
                    yield _skip_byte_order_mark(
                        LineReader(BoundedReader(_ZstdReader(raw).readinto, raw, self.label), self.label)
                    )
                else:
                    yield _skip_byte_order_mark(raw)
        except (EOFError, OSError, zlib.error) as error:
            raise TruncatedFile(f"cannot be read to its end ({error})", file=self.label) from None

    def _open_raw(self) -> io.BufferedReader:
        """Open the raw bytes; a pipe is cached, because it can be read only once."""
        if self.path == "-":
            return LineReader(io.BytesIO(_read_stream_once(sys.stdin.buffer)), self.label)
        path = Path(self.path)
        try:
            if path.exists() and not path.is_file() and not path.is_dir():
                return LineReader(io.BytesIO(_read_pipe_once(self.path)), self.label)
            return LineReader(io.FileIO(path), self.label)
        except FileNotFoundError:
            raise BadInput("no such file", file=self.label, hint=_suggest_file_names(path)) from None
        except OSError as error:
            raise BadInput(f"cannot be read ({error.strerror})", file=self.label) from None

    def blocks(self, size: int = BLOCK_BYTES) -> Iterator[bytes]:
        """Yield the bytes in blocks of whole lines; the last line ends with a newline."""
        with self.open() as file:
            while data := file.read(size):
                if not data.endswith(b"\n"):
                    data += next(file, b"")
                yield data if data.endswith(b"\n") else data + b"\n"

    def line_of(self, block: int) -> int:
        """Find the number of the first line of a block, by reading the file again."""
        return 1 + sum(data.count(b"\n") for data, _ in zip(self.blocks(), range(block), strict=False))

    def read(self) -> bytes:
        """Read all bytes; the last line ends with a newline."""
        with self.open() as file:
            data = file.read()
        return data if data.endswith(b"\n") or not data else data + b"\n"

    def head(self) -> list[str]:
        """Read up to three lines that are neither blank nor comments.

        They are used to detect the format.
        """
        lines: list[str] = []
        with self.open() as file:
            for raw in itertools.islice(file, 200):
                line = raw.decode("utf-8", "replace").rstrip("\r\n")
                if line.strip() and not line.lstrip().startswith("#"):
                    lines.append(line)
                if len(lines) == 3:
                    break
        return lines


@functools.lru_cache(maxsize=1)
def _read_stream_once(stream: IO[bytes]) -> bytes:
    return stream.read()


@functools.lru_cache(maxsize=4)
def _read_pipe_once(path: str) -> bytes:
    return Path(path).read_bytes()


def _skip_byte_order_mark(file: io.BufferedReader) -> io.BufferedReader:
    if file.peek(3)[:3] == b"\xef\xbb\xbf":
        file.read(3)
    return file


def _suggest_file_names(path: Path) -> str | None:
    """Return a hint with files of the folder that have a similar name, or its first ones."""
    if not path.parent.is_dir():
        return f"no such folder: {path.parent}"
    names = sorted(file.name for file in path.parent.iterdir() if not file.name.startswith("."))
    if similar := difflib.get_close_matches(path.name, names, n=3, cutoff=0.6):
        return f"did you mean {' or '.join(similar)}?"
    return f"the folder {path.parent} has {', '.join(names[:3])}" if names else f"the folder {path.parent} is empty"


class LineReader(io.BufferedReader):
    """A reader whose iteration refuses lines that exceed the limit."""

    def __init__(self, raw: Any, label: str) -> None:
        super().__init__(raw)
        self._label = label
        self._limit = LINE_LIMIT.n_bytes

    def __next__(self) -> bytes:
        line = self.readline(self._limit)
        if not line:
            raise StopIteration
        if len(line) == self._limit and not line.endswith(b"\n"):
            raise BadInput(
                f"a line is longer than {self._limit // BYTES_PER_MB:,} MB", file=self._label, hint=LINE_LIMIT.hint
            )
        return line


class BoundedReader(io.RawIOBase):
    """A reader of decompressed bytes, with a limit that depends on the compressed size."""

    def __init__(self, readinto: Callable[[Any], int], compressed: IO[bytes], label: str) -> None:
        self._readinto = readinto
        self._compressed = compressed
        self._label = label
        self._size = 0
        self._limit = DECOMPRESSED_LIMIT.n_bytes

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Read decompressed bytes into a buffer; raise BadInput above the limit."""
        size = self._readinto(buffer)
        self._size += size
        # A normal file is never near this ratio, so the position in the compressed file is rarely needed.
        if self._size > self._limit and self._size > MAX_DECOMPRESSION_RATIO * self._compressed.tell():
            raise BadInput(
                f"decompresses to more than {self._limit // BYTES_PER_MB:,} MB and {MAX_DECOMPRESSION_RATIO} times "
                f"its size",
                file=self._label,
                hint=DECOMPRESSED_LIMIT.hint,
            )
        return size


class _ZstdReader(io.RawIOBase):
    """A reader of .zst files that raises EOFError for truncated files, which the library's reader accepts."""

    def __init__(self, raw: IO[bytes]) -> None:
        try:
            import zstandard
        except ImportError:
            raise MissingExtra("reading .zst", "zstd") from None
        self._zstandard = zstandard
        self._raw = raw
        self._frame = zstandard.ZstdDecompressor().decompressobj()
        self._begun = False
        self._ready = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            data = self._frame.unused_data if self._frame.eof else self._raw.read(ZSTD_READ_BYTES)
            if self._frame.eof:
                data = data or self._raw.read(ZSTD_READ_BYTES)
                self._frame, self._begun = self._zstandard.ZstdDecompressor().decompressobj(), False
            if not data:
                if self._begun:
                    raise EOFError("the compressed file ends in the middle")
                return 0
            try:
                self._ready, self._begun = self._frame.decompress(data), True
            except self._zstandard.ZstdError as error:
                raise OSError(str(error)) from None
        size = min(len(buffer), len(self._ready))
        buffer[:size], self._ready = self._ready[:size], self._ready[size:]
        return size


@contextmanager
def wrap_library_errors(label: str, *, problem: str = "cannot be read", hint: str | None = None) -> Iterator[None]:
    """Raise BadInput with the file's name for any exception of a library in the block.

    Keep only calls of the library inside. On corrupt files NumPy raises tokenizer errors, h5py key errors, and
    polars panics, which are not an `Exception`.
    """
    try:
        yield
    except RagaugeError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise BadInput(f"{problem} ({error_summary(error)})", file=label, hint=hint) from None


def map_in_order(work: Callable[[int, B], T], blocks: Iterator[B]) -> Iterator[T]:
    """Yield `work(number, block)` for each block in order, computed by a few threads.

    Only a few blocks are in memory at a time.
    """
    with ThreadPoolExecutor(PARSER_THREADS) as pool:
        waiting: deque[Future[T]] = deque()
        try:
            for number, block in enumerate(blocks):
                waiting.append(pool.submit(work, number, block))
                if len(waiting) > PARSER_THREADS:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
