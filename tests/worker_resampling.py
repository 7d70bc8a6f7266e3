"""Rounds of draws for other processes, which import them from here."""

from __future__ import annotations

import os
import signal
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Drawn:
    """Each round is what it draws: n numbers below n."""

    n: int
    block: int = 3
    deadly: Path | None = None
    """A folder with a file for each part that was worked on; once there are five, a worker is killed with its part."""

    def __call__(self, rng, rounds):
        rows = rng.integers(0, self.n, (rounds, self.n)).astype(float)
        if self.deadly is not None:
            (self.deadly / uuid.uuid4().hex).touch()
            if len(list(self.deadly.iterdir())) >= 5:
                with suppress(FileExistsError):
                    (self.deadly / "killed").touch(exist_ok=False)
                    os.kill(os.getpid(), signal.SIGKILL)
        return rows

    def skip(self, rng, rounds):
        rng.integers(0, self.n, (rounds, self.n))


@dataclass(frozen=True)
class Counted(Drawn):
    """The same, where nobody else is to draw it."""

    def skip(self, rng, rounds):
        raise AssertionError("it was drawn twice")
