"""Every answer on disk as soon as it has come: what a killed process had, the next one goes on from."""

from __future__ import annotations

import contextlib
import json
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ragauge.errors import BadInput
from ragauge.keys import redact_data
from ragauge.runs.execute import Answer
from ragauge.structured_text import parse_json


class Journal:
    """A file of JSON lines: what is being done, then one answer a line, handed to the system at once.

    A line that was cut off is dropped with the answer that it began. A journal without any answer is begun anew. One of
    another system is begun anew too, and `replaced` says so; one of another dataset or plan is refused.
    """

    def __init__(self, path: Path, purpose: Mapping[str, Any], carried: Sequence[Answer] = ()) -> None:
        self.path = path
        self.answers: list[Answer] = []
        """What was there already."""
        self.sessions: list[dict[str, Any]] = []
        """What each process that worked on it noted down when it began."""
        self.replaced = ""
        self.corrupt: list[int] = []
        """Numbers of the lines that cannot be read: their answers are requested again."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Unbuffered: an answer is the operating system's when `keep` returns, and survives a kill.
            self._file = path.open("r+b" if path.exists() else "w+b", buffering=0)
        except OSError as error:
            raise BadInput(f"cannot be written ({error.strerror})", file=str(path.parent)) from None
        try:
            self._claim()
            whole = self._read(purpose)
            self._file.truncate(whole)
            self._file.seek(whole)
            if not whole:
                self._write({"purpose": dict(purpose)})
                for one in carried:
                    self._file.write(_line(one).encode("ascii"))
                    self.answers.append(one)
        except BaseException:
            self._file.close()
            raise

    def _claim(self) -> None:
        """One process at a time; the claim ends with the process, however it ends."""
        with contextlib.suppress(ImportError):  # not on every system
            import fcntl

            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise BadInput("another process is at work here", file=str(self.path.parent)) from None

    def _read(self, purpose: Mapping[str, Any]) -> int:
        """Take in what is there; the number of bytes that stay."""
        whole, found, seen = 0, None, set()
        for number, line in enumerate(self._file.read().splitlines(keepends=True), 1):
            if not line.endswith(b"\n"):
                break
            whole += len(line)
            try:
                row = parse_json(line)
                if "purpose" in row:
                    found = dict(row["purpose"])
                elif "session" in row:
                    self.sessions.append(dict(row["session"]))
                elif (row["a"][0], row["a"][1]) not in seen:
                    self.answers.append(_answer(row["a"]))
                    seen.add((row["a"][0], row["a"][1]))
            except (ValueError, TypeError, LookupError, AttributeError):
                self.corrupt.append(number)
        if found is None and self.answers:
            raise BadInput(
                f"the line that names the system is corrupt or missing, and {len(self.answers)} answers follow it",
                file=str(self.path),
                line=1,
                hint="restore the file, or use --fresh to discard the answers and run all queries again",
            )
        if found is not None and self.answers:
            other = changes(found, purpose)
            if not other:
                return whole
            refuse_unless_system(other, self.path.parent, "an unfinished run")
            self.replaced = told(other)
        self.answers, self.sessions, self.corrupt = [], [], []
        return 0

    def begin(self, session: Mapping[str, Any]) -> None:
        """Note that a process begins, and what it knows."""
        self.sessions.append(dict(session))
        self._write({"session": session})

    def keep(self, answer: Answer) -> None:
        """Write an answer down."""
        answer.session = len(self.sessions)
        try:
            self._file.write(_line(answer).encode("ascii"))
        except OSError as error:
            raise BadInput(f"cannot be written ({error.strerror})", file=str(self.path)) from None
        self.answers.append(answer)

    def _write(self, row: Any) -> None:
        self._file.write(redact_data(_ENCODE(row)).encode("ascii") + b"\n")

    def close(self) -> None:
        """Close the file; it stays."""
        self._file.close()


Changes = dict[str, tuple[Any, Any]]
"""`{"plan.k": (10, 3)}`: what was, and what is wanted."""


def changes(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> Changes:
    """Where two purposes differ.

    >>> changes({"plan": {"k": 10, "repeats": 1}}, {"plan": {"k": 3, "repeats": 1}})
    {'plan.k': (10, 3)}
    """
    out: Changes = {}
    for part, value in json.loads(_ENCODE(dict(wanted))).items():
        before = found.get(part)
        before = before if isinstance(before, Mapping) else {}  # a corrupt line may hold anything
        names = [*before, *(name for name in value if name not in before)]
        out |= {f"{part}.{n}": (before.get(n), value.get(n)) for n in names if before.get(n) != value.get(n)}
    return out


def told(other: Changes) -> str:
    """Changes in words, the first three."""
    shown = [f"{name.split('.')[-1]} {old} -> {new}" for name, (old, new) in list(other.items())[:3]]
    return ", ".join(shown) + (", …" if len(other) > 3 else "")


def refuse_unless_system(other: Changes, folder: Path, what: str) -> None:
    """Another system may take the place of the last; another dataset or plan is other work."""
    if any(not name.startswith("system.") for name in other):
        raise BadInput(
            f"holds {what} of other work ({told(other)})",
            file=str(folder),
            hint="give another --out, or --fresh to begin anew",
        )


def _line(answer: Answer) -> str:
    """An answer as a line of JSON, put together by hand: the general encoder takes three times as long.

    Scores are the bytes of their doubles in hexadecimal. Ids are one text with line breaks between them, or a list
    where that would not come back as it was.
    """
    one = answer
    docs = "\n".join(one.docs)
    plain = docs.count("\n") == len(one.docs) - 1 and docs
    stages = ",".join([f"{_TEXT(name)}:{nanoseconds}" for name, nanoseconds in one.stages.items()])
    return (
        f'{{"a":[{_TEXT(one.query)},{one.repeat},{_TEXT(docs) if plain else _ENCODE(one.docs)},'
        f'"{array("d", one.scores).tobytes().hex()}","{one.status}",{_TEXT(one.error)},'
        f"{one.attempts},{one.began},{one.total},{{{stages}}},{one.session},{int(one.complete)}]}}\n"
    )


def _answer(row: list[Any]) -> Answer:
    query, repeat, docs, scores, *rest = row
    doubles = array("d", bytes.fromhex(scores))
    found = Answer(query, repeat, docs.split("\n") if isinstance(docs, str) else docs, doubles.tolist(), *rest)
    texts = (found.query, found.status, found.error, *found.docs, *found.stages)
    numbers = (found.repeat, found.attempts, found.began, found.total, found.session, *found.stages.values())
    if not all(isinstance(one, str) for one in texts) or not isinstance(found.docs, list):
        raise TypeError("an answer has no text where it needs one")
    if not all(isinstance(one, int) and abs(one) < 2**63 for one in numbers):
        raise TypeError("an answer has no integer where it needs one")
    if max(found.repeat, found.attempts, found.session) >= 2**31 or len(found.docs) != len(found.scores):
        raise ValueError("an answer has numbers that cannot be right")
    found.query.encode()  # a query has no unpaired surrogate
    return found


_TEXT = json.encoder.encode_basestring_ascii
_ENCODE = json.JSONEncoder(separators=(",", ":")).encode
