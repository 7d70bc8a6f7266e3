"""Opening what the user names: a path, `-` for standard input, plain, .gz or .zst; as blocks of whole lines."""

from __future__ import annotations

import difflib
import gzip
import io
import os
import sys
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, TypeVar

from ragauge.errors import BadInput, MissingExtra

BLOCK = 16 << 20
"""Bytes per block: large enough for the reader's speed, small enough for the cache and for bounded memory."""
THREADS = min(4, os.cpu_count() or 2)
"""How many blocks are parsed at a time, beside the one that is being counted."""

T = TypeVar("T")


@dataclass(frozen=True)
class Source:
    """A file that can be read more than once; standard input is kept in memory for that."""

    path: str

    @property
    def label(self) -> str:
        """What messages call it."""
        return "<stdin>" if self.path == "-" else self.path

    @property
    def stem(self) -> str:
        """The file's name without compression and format: `runs/bm25.trec.gz` is `bm25`."""
        if self.path == "-":
            return "stdin"
        name = Path(self.path).name
        for ending in (".gz", ".zst"):
            name = name.removesuffix(ending)
        return Path(name).stem or name

    @property
    def ending(self) -> str:
        """The ending that names the format, without compression and in lower case: `.tsv`, or nothing."""
        name = self.path.lower().removesuffix(".gz").removesuffix(".zst")
        return Path(name).suffix

    @cached_property
    def _stdin(self) -> bytes:
        return sys.stdin.buffer.read()

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """The decompressed bytes, from the start."""
        if self.path == "-":
            yield io.BytesIO(self._stdin)
            return
        path = Path(self.path)
        try:
            raw = path.open("rb")
        except OSError as error:
            hint = f"the folder {path.parent} has {_neighbours(path)}" if path.parent.is_dir() else None
            raise BadInput(f"cannot be read ({error.strerror})", file=self.label, hint=hint) from None
        try:
            with raw:
                magic = raw.read(4)
                raw.seek(0)
                if magic[:2] == b"\x1f\x8b":
                    with gzip.open(raw) as unzipped:
                        yield io.BufferedReader(unzipped)
                elif magic == b"\x28\xb5\x2f\xfd":
                    yield _zstd(raw)
                else:
                    yield raw
        except (EOFError, OSError, zlib.error) as error:
            raise BadInput(f"cannot be read to its end ({error})", file=self.label) from None

    def blocks(self, size: int = BLOCK) -> Iterator[bytes]:
        """The bytes in blocks of whole lines, the last line ended."""
        with self.open() as file:
            while data := file.read(size):
                if not data.endswith(b"\n"):
                    data += file.readline()
                yield data if data.endswith(b"\n") else data + b"\n"

    def line_of(self, block: int) -> int:
        """The number of the first line of a block; counted only when there is something to complain about."""
        return 1 + sum(data.count(b"\n") for data, _ in zip(self.blocks(), range(block), strict=False))

    def read(self) -> bytes:
        """All bytes."""
        return b"".join(self.blocks())

    def head(self) -> list[str]:
        """The first lines that are neither blank nor comments, for finding out what the file is."""
        with self.open() as file:
            lines = file.read(1 << 16).decode("utf-8", "replace").splitlines()
        return [line for line in lines[:200] if line.strip() and not line.lstrip().startswith("#")]


def _neighbours(path: Path) -> str:
    names = sorted(p.name for p in path.parent.iterdir() if not p.name.startswith("."))
    near = difflib.get_close_matches(path.name, names, n=3, cutoff=0.3) or names[:3]
    return ", ".join(near) or "nothing in it"


def _zstd(raw: IO[bytes]) -> IO[bytes]:
    try:
        import zstandard
    except ImportError:
        raise MissingExtra("reading .zst", "zstd") from None
    return io.BufferedReader(zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True))


def in_order(work: Callable[[int, bytes], T], blocks: Iterator[bytes]) -> Iterator[T]:
    """`work(number, block)` for each block, a few at a time on threads, results in order and memory bounded."""
    with ThreadPoolExecutor(THREADS) as pool:
        waiting: deque[Future[T]] = deque()
        try:
            for number, block in enumerate(blocks):
                waiting.append(pool.submit(work, number, block))
                if len(waiting) > THREADS:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
