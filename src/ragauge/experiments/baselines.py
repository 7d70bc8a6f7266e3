"""Save runs of an experiment with judgments and queries as a baseline for a gate."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ragauge.core.errors import BadInput
from ragauge.experiments.output_folder import write_experiment
from ragauge.experiments.run import has_only_failures
from ragauge.files.workspace import folder_name, hold_folder
from ragauge.runs import folder as runs_folder
from ragauge.runs.results import Experiment


def save_baseline(experiment: Experiment, folder: str | Path) -> Path:
    """Save the runs of an experiment as a baseline for `gate`.

    The folder contains rankings, timings, judgments and queries, but no reports. It is self-contained and can be
    copied or committed. An existing baseline is not replaced, because a gate against its own results always passes.
    Pass the folder, or the folder of one of its runs, to `gate` as `baseline`. Raises BadInput if a system has no
    results.
    """
    path = Path(folder)
    if experiment.folder is not None and experiment.folder.resolve() == path.resolve():
        raise BadInput(
            "the baseline must have a folder of its own, got the folder of the runs",
            file=str(path),
            hint="use `--save-baseline baselines/docs`",
        )
    check_baseline_folder(path)
    missing = next((error for name, error in experiment.failures.items() if _has_no_results(experiment, name)), None)
    if missing is not None:
        raise BadInput(f"the baseline was not saved: {missing.message}", file=str(path), hint="fix the system first")
    with hold_folder(path):
        for name, run in experiment.runs.items():
            stored = (
                {} if experiment.folder is None else runs_folder.read_manifest(experiment.folder / folder_name(name))
            )
            runs_folder.write_run_folder(replace(run, manifest=stored or run.manifest), path / folder_name(name))
        write_experiment(experiment, path)
    return path


def check_baseline_folder(folder: Path) -> None:
    """Raise BadInput if a folder contains a baseline or other files."""
    if folder.is_dir() and is_baseline(folder):
        raise BadInput(
            "a baseline is saved here already; expected a new folder",
            file=str(folder),
            hint="to replace the baseline, delete its folder first",
        )
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise BadInput(
            "holds other files; expected a new folder",
            file=str(folder),
            hint="use `--save-baseline baselines/docs`",
        )


def is_baseline(folder: Path) -> bool:
    """Return whether a folder is a saved baseline: it has no report next to its runs."""
    return (folder / runs_folder.EXPERIMENT_FILE).exists() and not (folder / "report.md").exists()


def _has_no_results(experiment: Experiment, system: str) -> bool:
    return system not in experiment.runs or has_only_failures(experiment.runs[system])
