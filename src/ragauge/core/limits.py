"""Size limits of inputs, and the environment variables that change them."""

from __future__ import annotations

import os
from typing import NamedTuple

from ragauge.core.errors import BadInput

BYTES_PER_MB = 1_000_000


class SizeLimit(NamedTuple):
    """A default size limit in megabytes, and the environment variable that overrides it."""

    variable: str
    default_mb: int

    @property
    def n_bytes(self) -> int:
        """The limit in bytes.

        >>> SizeLimit("RAGAUGE_MAX_EXAMPLE_MB", 64).n_bytes
        64000000
        """
        text = os.environ.get(self.variable, "")
        if not text:
            return self.default_mb * BYTES_PER_MB
        try:
            megabytes = float(text)
        except ValueError:
            megabytes = 0.0
        if not 0 < megabytes < 1e12:
            raise BadInput(
                f"the environment variable {self.variable} is not valid; expected a number of megabytes, "
                f"got `{text[:80]}`",
                hint=f"export {self.variable}={self.default_mb}",
            )
        return int(megabytes * BYTES_PER_MB)

    @property
    def hint(self) -> str:
        """What to do if a legitimate input is larger."""
        return (
            f"if this is expected, raise the limit (megabytes): export "
            f"{self.variable}={self.n_bytes * 4 // BYTES_PER_MB}"
        )


REPLY_LIMIT = SizeLimit("RAGAUGE_MAX_REPLY_MB", 64)
"""Limit for one reply of a service, decompressed."""
LINE_LIMIT = SizeLimit("RAGAUGE_MAX_LINE_MB", 256)
"""Limit for one line of a text file."""
DECOMPRESSED_LIMIT = SizeLimit("RAGAUGE_MAX_DECOMPRESSED_MB", 1000)
"""Limit for a decompressed file, unless `MAX_DECOMPRESSION_RATIO` times its compressed size is more."""
MAX_DECOMPRESSION_RATIO = 100
