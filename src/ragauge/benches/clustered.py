"""Vector sets from files, folders, datasets or a seed."""

from __future__ import annotations

from typing import Any

import numpy as np

from ragauge.errors import BadInput
from ragauge.sweeps import VectorSet
from ragauge.systems.stores.intake import whole

OPTIONS: dict[str, int | float] = {"n": 20_000, "d": 64, "clusters": 100, "queries": 200, "spread": 0.5, "seed": 0}
ROWS_AT_ONCE = 65_536


def read(text: str) -> dict[str, int | float]:
    """Parse the options in `clustered:n=20000,d=64`; only those that are given.

    >>> read("clustered:n=500,spread=0.2")
    {'n': 500, 'spread': 0.2}
    """
    options: dict[str, int | float] = {}
    for part in filter(None, (piece.strip() for piece in text.partition(":")[2].split(","))):
        name, _, value = part.partition("=")
        try:
            if name not in OPTIONS:
                raise ValueError
            options[name] = float(value) if name == "spread" else int(value.replace("_", ""))
        except ValueError:
            known = ",".join(f"{key}={default:g}" for key, default in OPTIONS.items())
            raise BadInput(f"`{part}` is no option of clustered vectors", hint=f"clustered:{known}") from None
    return options


def clustered(metric: str = "l2", **options: Any) -> VectorSet:
    """Generate normally distributed clusters; `spread` is their mean width.

    The probability of the c-th largest cluster is proportional to 1 / c. Widths vary by a factor of up to two. The
    queries have the same distribution as the vectors, and are drawn independently.

    >>> made = clustered(n=100, d=4, clusters=5, queries=3)
    >>> made.base.shape, made.queries.shape, made.name
    ((100, 4), (3, 4), 'clustered:n=100,d=4,clusters=5,queries=3')
    """
    told = {**OPTIONS, **options}
    count, dimension, clusters = (whole(name, told[name]) for name in ("n", "d", "clusters"))
    queries, seed, spread = whole("queries", told["queries"]), whole("seed", told["seed"], 0), float(told["spread"])
    if not 0 <= spread <= 1e6:
        raise BadInput(f"spread is {spread:g}; it must be 0 or more")
    shape = np.random.default_rng([seed, 0])
    centres = shape.standard_normal((clusters, dimension))
    widths = spread * shape.uniform(2 / 3, 4 / 3, clusters)
    likely = 1 / np.arange(1, clusters + 1)

    def drawn(rows: int, stream: int) -> Any:
        # Separate random streams: the number of vectors does not affect the queries.
        random = np.random.default_rng([seed, stream])
        which = random.choice(clusters, rows, p=likely / likely.sum())
        out = np.empty((rows, dimension), np.float32)
        for start in range(0, rows, ROWS_AT_ONCE):
            part = which[start : start + ROWS_AT_ONCE]
            out[start : start + len(part)] = centres[part] + widths[part, None] * random.standard_normal(
                (len(part), dimension)
            )
        return out

    named = ",".join(f"{name}={told[name]:g}" for name in OPTIONS if told[name] != OPTIONS[name])
    name = f"clustered:{named}" if named else "clustered"
    return VectorSet(name, drawn(count, 1), drawn(queries, 2), metric)
