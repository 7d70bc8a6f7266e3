"""Progress reports, and their display on a terminal and elsewhere."""

from __future__ import annotations

import inspect

import pytest
import typer

import ragauge
from ragauge.cli.progress import show_progress
from ragauge.compute.progress import FINISHED, Progress, no_progress, scoped, track


def test_track_reports_before_each_item_and_after_the_last():
    reports: list[Progress] = []
    assert list(track("ab", reports.append, "reading")) == ["a", "b"]
    assert reports == [Progress("reading", done, 2) for done in (0, 1, 2)]


def test_scoped_sets_only_given_fields():
    reports: list[Progress] = []
    scoped(reports.append, subject="dense")(Progress("embedding", 1, 2, "other", FINISHED))
    scoped(reports.append, action="learning")(Progress("embedding", 1, 2, "other"))
    assert reports == [Progress("embedding", 1, 2, "dense", FINISHED), Progress("learning", 1, 2, "other")]
    assert scoped(no_progress, subject="dense") is no_progress


def interrupt(*reports: Progress, resume_hint: str = "") -> None:
    with show_progress(resume_hint) as progress:
        for report in reports:
            progress(report)
        raise KeyboardInterrupt


def test_show_progress_interrupted_names_step_and_exits_with_130(capsys):
    with pytest.raises(typer.Exit) as caught:
        interrupt(Progress("insert", 3, 10, "faiss"), resume_hint="rows are saved in out")
    assert caught.value.exit_code == 130
    assert capsys.readouterr().err == "\nstopped at faiss: insert (3 of 10); rows are saved in out\n"


def test_show_progress_interrupted_before_first_report(capsys):
    with pytest.raises(typer.Exit):
        interrupt()
    assert capsys.readouterr().err == "\nstopped at the beginning\n"


def test_show_progress_off_a_terminal_prints_nothing_by_default(capsys):
    with show_progress() as progress:
        progress(Progress("reading", 1, 2, "corpus"))
        progress(Progress("read in 1 s", 2, 2, "corpus", FINISHED))
    assert capsys.readouterr().err == ""


def test_public_functions_name_their_callback_progress():
    for name in ragauge.__all__:
        function = getattr(ragauge, name)
        if inspect.isfunction(function):
            parameters = inspect.signature(function).parameters
            assert not {"watch", "tell", "heard"} & parameters.keys(), name
            if "progress" in parameters:
                assert parameters["progress"].default is no_progress, name
