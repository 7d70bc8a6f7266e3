"""Invented names for the synthetic datasets."""

from __future__ import annotations

import random
from itertools import count

SYLLABLES = """
ba cor del fin gar hul jo kan lor mer nim os pra quil ru sol tem ul vas wen yor zan
"""
PATIENCE = 1000
"""Number of failed attempts after which names get one syllable longer."""


def made_up(rng: random.Random, taken: set[str]) -> str:
    """Generate a name that is not in `taken`, and add it.

    >>> made_up(random.Random(0), set())
    'Praquilcor'
    """
    syllables = SYLLABLES.split()
    for tried in count():
        longer = tried // PATIENCE
        name = "".join(rng.choice(syllables) for _ in range(3 + longer)).capitalize()
        if name not in taken:
            break
    taken.add(name)
    return name
