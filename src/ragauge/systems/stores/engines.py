"""Shared parts of engine adapters: folder, errors and metadata columns."""

from __future__ import annotations

import shutil
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import NoReturn

from ragauge.errors import BackendFailed, RagaugeError
from ragauge.keys import redact, register_secrets
from ragauge.temporary_files import create_temporary_folder


def preloaded(*modules: str) -> None:
    """Import modules that an engine would import during a measurement."""
    for name in modules:
        with suppress(ImportError):
            import_module(name)


class Home:
    """Folder of an engine: the given one, or a temporary one that `close` removes."""

    def __init__(self, store: str, path: str | None) -> None:
        self._own = path is None
        self.folder = create_temporary_folder(store) if path is None else Path(path)
        self.folder.mkdir(parents=True, exist_ok=True)

    def place(self, name: str, *, fresh: bool) -> Path:
        """Return the path of the engine's files.

        `fresh` deletes what a killed process left there.
        """
        place = self.folder / name
        if fresh:
            for remains in self.folder.glob(f"{name}*"):
                if remains.is_dir():
                    shutil.rmtree(remains)
                else:
                    remains.unlink()
        return place

    def close(self) -> None:
        """Remove the folder if it is temporary."""
        if self._own:
            shutil.rmtree(self.folder, ignore_errors=True)


class Gone:
    """Placeholder for a closed engine; any use raises BackendFailed."""

    def __getattr__(self, name: str) -> NoReturn:
        raise BackendFailed("the store is closed")


class Speaking:
    """Context manager that raises errors of an engine as BackendFailed.

    The message is on one line, with secrets redacted.

    An instance is created once and entered for each search, which is cheaper than a generator-based context manager.
    """

    def __init__(self, engine: str, secrets: tuple[str, ...] = ()) -> None:
        self._engine = engine
        register_secrets(*secrets)

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or isinstance(error, RagaugeError):
            return
        # Panics of engines in Rust are not subclasses of Exception.
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            whole = " ".join(str(error).split()) or type(error).__name__
            words = redact(whole)
            raise BackendFailed(f"{self._engine}: {words}") from (error if words == whole else None)
