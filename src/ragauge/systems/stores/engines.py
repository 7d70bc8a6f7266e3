"""What engines on disk have in common: a folder to live in, and words when they fail."""

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
    """Load what an engine would load when first used: that is neither its time nor its memory."""
    for name in modules:
        with suppress(ImportError):
            import_module(name)


class Home:
    """The folder of an engine: the one that was given, or one of its own that goes with it."""

    def __init__(self, store: str, path: str | None) -> None:
        self._own = path is None
        self.folder = create_temporary_folder(store) if path is None else Path(path)
        self.folder.mkdir(parents=True, exist_ok=True)

    def place(self, name: str, *, fresh: bool) -> Path:
        """Where the engine keeps its files; `fresh` clears away what a killed process left there."""
        place = self.folder / name
        if fresh:
            for remains in self.folder.glob(f"{name}*"):
                if remains.is_dir():
                    shutil.rmtree(remains)
                else:
                    remains.unlink()
        return place

    def close(self) -> None:
        """Take away the folder, if it was only lent."""
        if self._own:
            shutil.rmtree(self.folder, ignore_errors=True)


class Gone:
    """What stands in the place of an engine that was closed."""

    def __getattr__(self, name: str) -> NoReturn:
        raise BackendFailed("the store is closed")


class Speaking:
    """What an engine refuses inside becomes an error of ours with its own words, and without its secrets.

    Made once and entered for every search: cheaper than a generator, where microseconds count.
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
        # Engines in Rust that panic raise what is no Exception, so that nobody goes on as if nothing had happened.
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            whole = " ".join(str(error).split()) or type(error).__name__
            words = redact(whole)
            raise BackendFailed(f"{self._engine}: {words}") from (error if words == whole else None)
