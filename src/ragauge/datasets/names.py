"""Words that nobody has used before, for things that are made up."""

from __future__ import annotations

import random
from itertools import count

SYLLABLES = """
ba cor del fin gar hul jo kan lor mer nim os pra quil ru sol tem ul vas wen yor zan
"""
PATIENCE = 1000
"""So many names in a row are taken only where nearly all of that length are; then they become longer."""


def made_up(rng: random.Random, taken: set[str]) -> str:
    """A name that is not among those taken, and is from now on.

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
