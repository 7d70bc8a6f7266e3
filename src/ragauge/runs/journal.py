"""Every answer on disk before the next query is asked: what a killed process had, the next one goes on from."""

from __future__ import annotations

import json
from array import array
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ragauge.errors import BadInput
from ragauge.runs.execute import Answer


class Journal:
    """A file of JSON lines: what is being done, then one answer a line, handed to the system at once.

    A line that was cut off is dropped with the answer that it began. A journal of something else is refused.
    """

    def __init__(self, path: Path, purpose: Mapping[str, Any]) -> None:
        self.answers: list[Answer] = []
        """What was there already."""
        self.sessions: list[dict[str, Any]] = []
        """What each process that worked on it noted down when it began."""
        whole = self._read(path, purpose) if path.exists() else 0
        path.parent.mkdir(parents=True, exist_ok=True)
        # Unbuffered: an answer is the operating system's when `keep` returns, and survives a kill.
        self._file = path.open("r+b" if path.exists() else "w+b", buffering=0)
        self._file.truncate(whole)
        self._file.seek(whole)
        if not whole:
            self._write({"purpose": dict(purpose)})
        self.path = path

    def _read(self, path: Path, purpose: Mapping[str, Any]) -> int:
        whole = 0
        with path.open("rb") as file:
            for number, line in enumerate(file):
                try:
                    row = json.loads(line) if line.endswith(b"\n") else None
                except ValueError:
                    row = None
                if row is None:
                    break
                if number == 0:
                    _same(row.get("purpose", {}), purpose, path)
                elif "session" in row:
                    self.sessions.append(row["session"])
                else:
                    self.answers.append(_answer(row["a"]))
                whole += len(line)
        return whole

    def begin(self, session: Mapping[str, Any]) -> None:
        """Note that a process begins, and what it knows."""
        self.sessions.append(dict(session))
        self._write({"session": session})

    def keep(self, answer: Answer) -> None:
        """Write an answer down."""
        answer.session = len(self.sessions)
        self._file.write(_line(answer).encode("ascii"))
        self.answers.append(answer)

    def _write(self, row: Any) -> None:
        self._file.write(_ENCODE(row).encode("ascii") + b"\n")

    def close(self) -> None:
        """Close the file; it stays."""
        self._file.close()


def _line(answer: Answer) -> str:
    """An answer as a line of JSON, put together by hand: the general encoder takes three times as long.

    Ids are one text with line breaks between them, scores the bytes of their doubles in hexadecimal; both are a list
    again where that would not come back as it was.
    """
    one = answer
    docs = "\n".join(one.docs)
    plain = docs.count("\n") == len(one.docs) - 1 and docs
    stages = ",".join([f"{_TEXT(name)}:{nanoseconds}" for name, nanoseconds in one.stages.items()])
    return (
        f'{{"a":[{_TEXT(one.query)},{one.repeat},{_TEXT(docs) if plain else _ENCODE(one.docs)},'
        f'"{array("d", one.scores).tobytes().hex()}","{one.status}",{_TEXT(one.error)},'
        f"{one.attempts},{one.began},{one.total},{{{stages}}},{one.session}]}}\n"
    )


def _answer(row: list[Any]) -> Answer:
    query, repeat, docs, scores, *rest = row
    doubles = array("d", bytes.fromhex(scores))
    return Answer(query, repeat, docs.split("\n") if isinstance(docs, str) else docs, doubles.tolist(), *rest)


_TEXT = json.encoder.encode_basestring_ascii
_ENCODE = json.JSONEncoder(separators=(",", ":")).encode


def _same(found: Mapping[str, Any], wanted: Mapping[str, Any], path: Path) -> None:
    known = json.loads(_ENCODE(dict(wanted)))
    different = [name for name in {**found, **known} if found.get(name) != known.get(name)]
    if different:
        raise BadInput(
            f"holds an unfinished run with another {' and '.join(sorted(different))}",
            file=str(path.parent),
            hint="give another --out, or --fresh to begin anew",
        )
