"""`ragauge run … --save-baseline FOLDER`: save a baseline for `ragauge gate`, and say how to use it."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from ragauge.baselines import save_baseline
from ragauge.cli import console
from ragauge.experiments import slug
from ragauge.outcomes import Experiment


def save(experiment: Experiment, folder: Path) -> None:
    """Save the runs of an experiment as a baseline and print the option that uses it."""
    save_baseline(experiment, folder)
    first = shlex.quote(str(folder / slug(next(iter(experiment.runs)))))
    names = ", ".join(experiment.runs)
    console.talk(
        [f"saved the baseline {folder}{os.sep} ({names}); use it with `ragauge gate RUN --baseline {first} …`"]
    )
