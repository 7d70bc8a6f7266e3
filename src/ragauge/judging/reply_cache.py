"""Reply cache: every reply is saved as it arrives, so that an interrupted run resumes without paying again.

One SQLite file in the chosen folder, open in one process at a time. The key of a reply covers everything that could
change it: endpoint, model, parameters, messages, schema and replicate.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ragauge.core.errors import BadInput, error_summary
from ragauge.core.protocols import Reply
from ragauge.core.records import Floats
from ragauge.core.secrets import redact_data
from ragauge.core.structured_text import parse_json
from ragauge.files.workspace import busy_folder_error

REPLIES_FILE = "replies.sqlite"
_TABLES_SQL = """
CREATE TABLE IF NOT EXISTS replies (
  key TEXT PRIMARY KEY, step TEXT, sample TEXT, text TEXT, prompt_tokens INTEGER, completion_tokens INTEGER,
  cached_tokens INTEGER, finish TEXT, model TEXT, probabilities TEXT, how TEXT, seconds REAL, attempts INTEGER,
  made TEXT
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS calls (
  step TEXT, model TEXT, prompt_tokens INTEGER, completion_tokens INTEGER, cached_tokens INTEGER, failure TEXT,
  made TEXT
);
CREATE TABLE IF NOT EXISTS vectors (key TEXT PRIMARY KEY, vector BLOB) WITHOUT ROWID;
"""
_REPLY_COLUMNS = "text, prompt_tokens, completion_tokens, cached_tokens, finish, model, probabilities, how"


class TotalUsage(NamedTuple):
    """Totals of all requests of a folder, including those that failed."""

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0


class CachedReply(NamedTuple):
    """A cached reply, with its duration in seconds and its number of attempts."""

    reply: Reply
    seconds: float
    attempts: int


class ReplyCache:
    """Reply cache of one folder; in memory without a folder."""

    def __init__(self, folder: Path | None = None) -> None:
        self._file = None if folder is None else folder / REPLIES_FILE
        self._is_new = self._file is not None and not self._file.exists()
        self._is_new_folder = folder is not None and not folder.exists()
        try:
            if folder is not None:
                folder.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(self._file or ":memory:", isolation_level=None, check_same_thread=False)
            # The process holds the lock as long as it lives; a commit is handed to the operating system at once.
            for line in ("locking_mode=EXCLUSIVE", "journal_mode=WAL", "synchronous=NORMAL", "busy_timeout=0"):
                self._connection.execute(f"PRAGMA {line}")
            self._connection.executescript(_TABLES_SQL)
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                raise busy_folder_error(str(folder)) from None
            raise BadInput(f"cannot be written ({error})", file=str(folder)) from None
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            raise BadInput(
                f"holds no replies ({error})", file=str(self._file), hint="move the file to another folder"
            ) from None
        except OSError as error:
            raise BadInput(f"cannot be written ({error.strerror})", file=str(folder)) from None

    def find(self, key: str) -> CachedReply | None:
        """Return the cached reply of a key; None if there is none."""
        with self._translate_errors("cannot be read"):
            row = self._connection.execute(
                f"SELECT {_REPLY_COLUMNS}, seconds, attempts FROM replies WHERE key = ?",  # noqa: S608 - a constant
                (key,),
            ).fetchone()
            if row is None:
                return None
            *reply, seconds, attempts = row
            if not all(isinstance(text, str) for text in (reply[0], *reply[4:8])):
                raise TypeError("a reply is not text")
            if not all(isinstance(number, int | float) for number in (*reply[1:4], seconds, attempts)):
                raise TypeError("a count is not a number")
            reply[6] = dict(parse_json(reply[6]))
            return CachedReply(Reply(*reply), seconds, attempts)

    @contextmanager
    def _translate_errors(self, problem: str) -> Iterator[None]:
        """Convert SQLite errors and invalid contents to BadInput with the file name."""
        try:
            yield
        except (sqlite3.Error, TypeError, ValueError, OverflowError) as error:
            hint = "free some space" if "full" in str(error) else "move the file away to start without saved replies"
            raise BadInput(f"{problem} ({error_summary(error)})", file=str(self._file), hint=hint) from None

    def begin_call(self, step: str, expected: Reply) -> int:
        """Save a request before it is sent, with its expected tokens, and return its number.

        An interrupted request stays as it is, since the endpoint may have received and billed it.
        """
        with self._translate_errors("cannot be written"):
            return self._save_call(None, step, expected, "interrupted", datetime.now(UTC).isoformat())

    def save(
        self,
        key: str,
        step: str,
        sample: str,
        cached: CachedReply,
        request_reply: Reply | None = None,
        call: int | None = None,
    ) -> None:
        """Save a reply and its request.

        `request_reply` has the tokens of that request only, without those of failed attempts. `call` is its number.
        """
        reply, now = cached.reply, datetime.now(UTC).isoformat()
        probabilities = json.dumps(dict(reply.probabilities))
        values = (*reply[:6], probabilities, reply.how, cached.seconds, cached.attempts, now)
        columns = f"key, step, sample, {_REPLY_COLUMNS}, seconds, attempts, made"
        row = tuple(map(_to_storable, (key, step, sample, *values)))
        with self._translate_errors("cannot be written"):
            self._connection.execute("BEGIN")
            self._connection.execute(f"INSERT OR REPLACE INTO replies ({columns}) VALUES ({', '.join('?' * 14)})", row)  # noqa: S608 - constants
            self._save_call(call, step, request_reply or reply, "", now)
            self._connection.execute("COMMIT")

    def save_failure(self, step: str, reason: str, reply: Reply, call: int | None = None) -> None:
        """Save that a request failed, and the tokens that it used."""
        with self._translate_errors("cannot be written"):
            self._save_call(call, step, reply, reason, datetime.now(UTC).isoformat())

    def total_usage(self) -> TotalUsage:
        """Return the totals of all requests, over all sessions."""
        sums = "count(*), sum(prompt_tokens), sum(completion_tokens), sum(cached_tokens)"
        with self._translate_errors("cannot be read"):
            row = self._connection.execute(f"SELECT {sums} FROM calls").fetchone()  # noqa: S608 - a constant
            return TotalUsage(*(int(value or 0) for value in row))

    def _save_call(self, call: int | None, step: str, reply: Reply, failure: str, now: str) -> int:
        """Save a request, instead of the one with the number `call` if given, and return its number."""
        tokens = (reply.prompt_tokens, reply.completion_tokens, reply.cached_tokens)
        row = tuple(map(_to_storable, (call, step, reply.model, *tokens, failure, now)))
        columns = "rowid, step, model, prompt_tokens, completion_tokens, cached_tokens, failure, made"
        statement = f"INSERT OR REPLACE INTO calls ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608 - constants
        return int(self._connection.execute(statement, row).lastrowid or 0)

    def find_vectors(self, keys: Sequence[str]) -> dict[str, Floats]:
        """Return the cached vectors of these keys."""
        vectors: dict[str, Floats] = {}
        with self._translate_errors("cannot be read"):
            for key in keys:
                row = self._connection.execute("SELECT vector FROM vectors WHERE key = ?", (key,)).fetchone()
                if row is not None:
                    vectors[key] = np.frombuffer(row[0], np.float32).astype(np.float64)
        return vectors

    def save_vectors(self, vectors: Mapping[str, Any]) -> None:
        rows = [(key, np.asarray(vector, np.float32).tobytes()) for key, vector in vectors.items()]
        with self._translate_errors("cannot be written"):
            self._connection.execute("BEGIN")
            self._connection.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?)", rows)
            self._connection.execute("COMMIT")

    def close(self) -> None:
        """Close the file, and remove it if it is new and nothing was saved."""
        # Removed before it is closed: until then no other process can write to it.
        if self._file is not None and self._is_new and self._is_empty():
            with contextlib.suppress(OSError, sqlite3.Error):
                self._connection.execute("PRAGMA journal_mode=DELETE")  # otherwise its log would be left behind
                self._file.unlink()
        self._connection.close()
        if self._file is not None and self._is_new_folder:
            with contextlib.suppress(OSError):  # not empty: files were written
                self._file.parent.rmdir()

    def _is_empty(self) -> bool:
        counts = "SELECT (SELECT count(*) FROM replies) + (SELECT count(*) FROM calls) + (SELECT count(*) FROM vectors)"
        with contextlib.suppress(sqlite3.Error):
            return bool(self._connection.execute(counts).fetchone() == (0,))
        return False


def _to_storable(value: Any) -> Any:
    """Make text storable in SQLite.

    Secrets are redacted, and unpaired surrogates become question marks.
    """
    return redact_data(value.encode("utf-8", "replace").decode()) if isinstance(value, str) else value
