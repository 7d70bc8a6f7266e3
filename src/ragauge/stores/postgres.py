"""PostgreSQL for stores: connections, errors and filters.

Names and values reach a statement as `psycopg.sql.Identifier`, `psycopg.sql.Literal` or parameters, never as text.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ragauge.core.errors import BackendFailed, BackendRestarted, BadInput, MissingExtra
from ragauge.core.secrets import redact, register_secrets
from ragauge.models.http_client import is_loopback
from ragauge.stores import postgres_server
from ragauge.stores.filter_conditions import EQUAL, MAX_EXACT_INTEGER, ONE_OF, parse_filter

if TYPE_CHECKING:
    from psycopg import Connection, sql
    from psycopg.types.json import Jsonb


DSN_SECRET_FIELDS = ("password", "sslpassword", "scram_client_key", "scram_server_key", "oauth_client_secret")
DSN_PUBLIC_FIELDS = ("host", "hostaddr", "port", "dbname", "user", "service")
MIN_PGVECTOR_VERSION = (0, 8)
"""The first pgvector version with iterative index scans, which continue until enough rows match a filter."""
SERVER_DOWN_SQLSTATES = ("57P01", "57P02", "57P03")
"""SQLSTATE codes of a server that is shutting down, has crashed, or is not up yet."""


def resolve_dsn(dsn: str | None = None) -> str:
    """Return the DSN of the server to use.

    It is the given one, RAGAUGE_DSN, or that of the embedded server, which is started if needed.
    """
    _check_libraries()
    address = dsn or os.environ.get("RAGAUGE_DSN")
    if not address:
        return postgres_server.start_server()
    register_dsn_secrets(address)  # raises an error for a DSN that cannot be parsed
    return address


def stop_embedded_server() -> None:
    """Stop the embedded server, unless another process uses it."""
    postgres_server.stop_server()


def restart_error(dsn: str) -> BackendRestarted:
    """Return the error for a query during which the server died.

    Call it once the server accepts connections again.
    """
    return BackendRestarted(
        f"the PostgreSQL server ({redact_dsn(dsn)}) closed the connection during a query, and accepts connections "
        f"again",
        hint="run the query again",
        is_temporary=True,
    )


def is_connection_lost(error: BaseException) -> bool:
    """Return whether an error means that the connection or the server is gone."""
    import psycopg

    if not isinstance(error, psycopg.OperationalError):
        return False
    # An error without a code comes from the client: the socket was closed, or the pool has no connection.
    return error.sqlstate is None or error.sqlstate.startswith("08") or error.sqlstate in SERVER_DOWN_SQLSTATES


class ServerRecovery:
    """Reconnection of one client after its server died.

    If it fails, the failure is final for this client, so that no query waits again.
    """

    def __init__(self) -> None:
        self._failure: BackendFailed | None = None
        self._restarts = 0

    def check(self) -> None:
        """Raise the error of a recovery that failed."""
        if self._failure is not None:
            raise self._failure

    def recover(self, dsn: str) -> str:
        """Wait until the server accepts connections and return its DSN.

        A dead embedded server is restarted. Raises BackendFailed if the server does not come back.
        """
        self.check()
        try:
            new_dsn = _wait_for_server(dsn)
        except BackendFailed as error:
            self._failure = error
            raise
        self._restarts += 1
        return new_dsn

    def describe(self) -> dict[str, int]:
        """Return the number of restarts for the manifest, if there were any."""
        return {"server_restarts": self._restarts} if self._restarts else {}


def _wait_for_server(dsn: str) -> str:
    import psycopg

    until = time.monotonic() + postgres_server.RECOVERY_TIMEOUT_S
    while True:
        new_dsn = postgres_server.restart_server(dsn)
        with postgres_errors(dsn):
            try:
                psycopg.connect(build_conninfo(new_dsn or dsn)).close()
            except psycopg.OperationalError:
                if new_dsn is None or time.monotonic() > until:
                    raise
                time.sleep(0.2)
            else:
                return new_dsn or dsn


def redact_dsn(dsn: str) -> str:
    """Format a DSN for output: host, port, database, user and service only."""
    parts = _parse_dsn(dsn)
    return " ".join(f"{name}={parts[name]}" for name in DSN_PUBLIC_FIELDS if parts.get(name))


@contextmanager
def postgres_errors(dsn: str) -> Iterator[None]:
    """Raise errors of PostgreSQL as BackendFailed or BadInput, without passwords."""
    import psycopg

    try:
        yield
    except UnicodeEncodeError as error:
        raise BadInput(f"PostgreSQL cannot store a text with the character {error.object[error.start]!a}") from error
    except psycopg.Error as error:
        message = str(error)
        register_dsn_secrets(dsn)
        summary = " ".join(redact(error.diag.message_primary or message).split())
        hint = error.diag.message_hint
        if hint is None and error.sqlstate is None and isinstance(error, psycopg.OperationalError):
            hint = "check the server and the DSN, or omit the DSN to use the embedded server"
        is_input_error = isinstance(error, psycopg.DataError | psycopg.errors.UniqueViolation)
        kind = BadInput if is_input_error else BackendFailed
        # If the message has a secret, the original error is also left out of the traceback.
        cause = error if redact(message) == message else None
        raise kind(f"PostgreSQL: {summary}", hint=hint and " ".join(hint.split())) from cause


def connect(dsn: str, settings: Sequence[tuple[str, str]] = ()) -> Connection[Any]:
    """Open a connection with vector support; create the extension if it is missing."""
    import psycopg
    from pgvector.psycopg import register_vector

    with postgres_errors(dsn):
        connection = psycopg.connect(build_conninfo(dsn), autocommit=True)
        try:
            _ensure_vector_extension(connection)
            register_vector(connection)
            if settings:
                connection.execute(*build_settings_statement(settings))
        except BaseException:
            connection.close()
            raise
    return connection


def build_conninfo(dsn: str) -> str:
    """Return the DSN with a connection timeout and an application name."""
    from psycopg.conninfo import make_conninfo

    usual = {"connect_timeout": "10", "application_name": "ragauge"}
    return make_conninfo(dsn, **{name: value for name, value in usual.items() if name not in _parse_dsn(dsn)})


def build_settings_statement(
    settings: Sequence[tuple[str, str]], *, local: bool = False
) -> tuple[sql.Composed, list[str]]:
    """Build a statement that applies settings, and its parameters.

    They hold for the session or, with `local`, for the transaction.
    """
    from psycopg import sql

    setting = sql.SQL("set_config(%s, %s, {})").format(sql.Literal(local))
    return sql.SQL("SELECT ") + sql.SQL(", ").join([setting] * len(settings)), [
        word for pair in settings for word in pair
    ]


def thread_settings(threads: int) -> list[tuple[str, str]]:
    """Return the settings that limit a statement to `threads` threads.

    0 keeps the server's settings.
    """
    helpers = str(threads - 1)  # PostgreSQL counts additional workers only
    names = ("max_parallel_maintenance_workers", "max_parallel_workers_per_gather")
    return [(name, helpers) for name in names] if threads else []


def choose_table_name(name: str | None) -> str:
    """Return the given table name, or a new unique one.

    Raises BadInput for a name that PostgreSQL would change.
    """
    if name is None:
        return f"ragauge_{secrets.token_hex(8)}"
    try:
        length = len(name.encode())
    except UnicodeEncodeError:
        length = 0
    # PostgreSQL truncates longer names, so two could become one; psycopg treats % in a statement as a parameter.
    if not 1 <= length <= 63 or "\x00" in name or "%" in name:
        raise BadInput(f"{name!r} cannot be the name of a table", hint="1 to 63 bytes, without % and NUL")
    return name


def to_jsonb(value: Any, noun: str) -> Jsonb:
    """Convert a mapping to PostgreSQL's jsonb; raise BadInput if it cannot be JSON."""
    from psycopg.types.json import Jsonb

    try:
        text = json.dumps(dict(value), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise BadInput(f"{noun} cannot be written as JSON: {error}") from error
    return Jsonb(value, dumps=lambda _: text)


def read_versions(connection: Connection[Any]) -> dict[str, str]:
    """Return the versions of the server and of pgvector for manifests."""
    statement = "SELECT current_setting('server_version'), extversion FROM pg_extension WHERE extname = 'vector'"
    row = connection.execute(statement).fetchone()
    return {"postgresql": row[0], "pgvector": row[1]} if row else {}


def find_remote_hosts(dsn: str) -> list[str]:
    """Return the hosts of a DSN that are other machines: libpq may send them the password of PGPASSWORD."""
    _check_libraries()
    parts = _parse_dsn(dsn)
    hosts = [host for name in ("host", "hostaddr") for host in str(parts.get(name) or "").split(",") if host]
    return [host for host in hosts if not host.startswith("/") and not is_loopback(host)]


def find_server_pids(dsn: str, connection: Connection[Any]) -> list[int]:
    """Return the process ids of a server on this machine, main process first.

    Empty for any other server.
    """
    import psutil

    if find_remote_hosts(dsn):
        return []
    try:
        first = psutil.Process(connection.info.backend_pid).parent()
        # In a container the server has other process ids: this one may belong to another program.
        if first is None or not first.name().startswith(("postgres", "postmaster")):
            return []
        return [first.pid, *(child.pid for child in first.children(recursive=True))]
    except psutil.Error:
        return []


def _check_libraries() -> None:
    try:
        import pgvector  # noqa: F401
        import psycopg  # noqa: F401
    except ImportError as error:
        raise MissingExtra("PostgreSQL", "pgvector") from error


def _parse_dsn(dsn: str) -> Mapping[str, Any]:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    try:
        parts = conninfo_to_dict(dsn)
    except psycopg.Error:
        parts = None
    # libpq's error quotes the DSN, and libpq takes the part of a password after an @ for the host.
    if parts is None or "@" in str(parts.get("host", "")):
        raise BadInput(
            "the DSN of the PostgreSQL server cannot be read",
            hint="postgresql://user:password@host:5432/database; in a password write %40 for @ and %2F for /",
        ) from None
    return parts


def register_dsn_secrets(dsn: str) -> list[str]:
    """Return the secrets of a DSN and register them for redaction."""
    parts = _parse_dsn(dsn)
    secrets = [str(parts.get(name) or "") for name in DSN_SECRET_FIELDS]
    register_secrets(*secrets)
    return [secret for secret in secrets if secret]


def _ensure_vector_extension(connection: Connection[Any]) -> None:
    query = "SELECT extversion FROM pg_extension WHERE extname = 'vector'"
    if connection.execute(query).fetchone() is None:
        with connection.transaction():
            # Without the lock, the second of two processes that create the extension at once would fail.
            connection.execute("SELECT pg_advisory_xact_lock(%s)", [7_262_617_569])
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
    row = connection.execute(query).fetchone()
    version = str(row[0]) if row else "0"
    if tuple(int(part) for part in version.split(".")[:2]) < MIN_PGVECTOR_VERSION:
        raise BackendFailed(
            f"the server has pgvector {version}; expected 0.8 or newer",
            hint="ALTER EXTENSION vector UPDATE, after installing a newer one",
        )


def to_exact_number(value: Any) -> Any:
    """Return a whole number as an integer if double precision may not hold its neighbours, else the value unchanged.

    jsonb has decimal numbers. The shortest decimal of a larger double differs from its value, which integers are
    compared with.

    >>> to_exact_number(2.0**60), to_exact_number(0.5), to_exact_number("a")
    (1152921504606846976, 0.5, 'a')
    """
    return int(value) if isinstance(value, float) and abs(value) >= MAX_EXACT_INTEGER else value


def filter_to_sql(where: Mapping[str, Any]) -> tuple[str, list[Any]]:
    """Convert a filter to SQL without values, and return the values in the order of their placeholders.

    Equality is written as containment, which an index on the metadata can use.
    """
    conditions = parse_filter(where)
    contained = {field: to_exact_number(value) for field, operator, value in conditions if operator == EQUAL}
    parts = ["metadata @> %s"] if contained else []
    values: list[Any] = [to_jsonb(contained, "the filter")] if contained else []
    for field, operator, value in (condition for condition in conditions if condition.operator != EQUAL):
        if operator == ONE_OF:
            values += [field, [to_jsonb({"": to_exact_number(item)}, "the filter") for item in value]]
            parts.append("jsonb_build_object('', metadata -> %s) = ANY(%s)")
        else:
            exact = to_exact_number(value)
            values += [field, field, Decimal(repr(exact)) if isinstance(exact, float) else exact]
            # CASE, because the planner may test a cast before the type that it depends on.
            parts.append(
                f"CASE WHEN jsonb_typeof(metadata -> %s) = 'number' "
                f"THEN (metadata -> %s)::numeric {operator} %s ELSE false END"
            )
    return " AND ".join(parts), values
