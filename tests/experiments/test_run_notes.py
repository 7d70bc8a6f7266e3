"""Notes and errors of `run`: trials, graphs without links, random systems, omitted runs, build times, invalid input."""

from __future__ import annotations

import asyncio
import contextlib

import numpy as np
import pytest
from typer.testing import CliRunner

import ragauge
from ragauge.cli.app import build_app
from ragauge.core.components import check_spec
from ragauge.core.documents import Document
from ragauge.core.errors import BadInput, UnknownName
from ragauge.core.graphs import LinkArrays
from ragauge.core.randomness import query_rng
from ragauge.core.records import Dataset, Judgments
from ragauge.core.specs import Spec
from ragauge.experiments.run import run
from ragauge.runs.folder import manifest_value
from ragauge.systems.builder import SystemBuilder

N = 12


def make_dataset(links=None, **metadata):
    """Build a dataset in which document dI is relevant for query qI."""
    documents = [
        Document(f"d{i}", f"word{i} and word{i + 1}", metadata={**metadata, **({"links": links(i)} if links else {})})
        for i in range(N)
    ]
    queries = {f"q{i}": f"word{i}" for i in range(N)}
    grades = {f"q{i}": {f"d{i}": 1} for i in range(N)}
    tags = {f"q{i}": {"half": "first" if i < N // 2 else "second"} for i in range(N)}
    return Dataset("words", documents, queries, Judgments(grades), tags=tags)


def random_rank(query, k):
    """Return the relevant document behind a random number of others, 0 to 2."""
    others = [f"x{i}" for i in range(int(query_rng(0, query).integers(0, 3)))]
    return [*others, f"d{query.removeprefix('word')}"][:k]


def second_rank(query, k):
    return ["x0", f"d{query.removeprefix('word')}"][:k]


def run_cli(*arguments, cwd):
    """Run a command in this process; errors are raised."""
    with contextlib.chdir(cwd):
        result = CliRunner().invoke(build_app(), list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


# Trials


@pytest.fixture(scope="module")
def five_trials(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "words"
    systems = {"second": second_rank, "lucky": random_rank}
    return run(make_dataset(), systems, measures=["mrr@5"], baseline="second", repeats=5, out=folder)


def reciprocal_ranks(experiment):
    """Compute the reciprocal rank per trial and query from the rankings."""
    rows = []
    for trial in experiment.runs["lucky"].trials():
        ranks = {
            query: rank for query, doc, rank in trial.table.select("query", "doc", "rank").iter_rows() if doc[0] == "d"
        }
        rows.append([1 / ranks[f"q{i}"] for i in range(N)])
    return np.array(rows)


def test_run_differences_over_trials_match_compare_of_folder(five_trials):
    values = reciprocal_ranks(five_trials)
    assert values.mean() != pytest.approx(values[0].mean())  # needed to detect use of the first trial only
    row, on_disk = (
        five_trials.differences["lucky"],
        ragauge.compare(str(five_trials.folder), baseline="second").find("lucky"),
    )
    assert row.difference == pytest.approx(values.mean() - 0.5)
    assert row == on_disk
    assert ragauge.compare(five_trials).find("lucky") == on_disk


def test_run_repr_and_scores_are_means_over_trials(five_trials):
    values = reciprocal_ranks(five_trials)
    assert five_trials.scores["lucky"].means["mrr@5"] == pytest.approx(values.mean())
    assert f"mrr@5 {values.mean():.4f} (n={N}); mean over 5 trials)" in repr(five_trials)
    assert "mrr@5 0.5000 (n=12))\n" in repr(five_trials)  # all trials of the system `second` are equal
    assert five_trials.strata("half")["first"][1]["lucky"] == pytest.approx(values[:, : N // 2].mean())


def test_overview_custom_measure_uses_all_trials():
    def found_first(judged):
        return float(judged.ranks[:1] == [1])

    result = run(make_dataset(), {"lucky": random_rank}, measures=[found_first], repeats=5)
    summary = ragauge.overview(result, audited=False)
    assert summary.entries["lucky"].means["found_first"].value == pytest.approx((reciprocal_ranks(result) == 1).mean())


# Graphs and random systems


class LetterCounts:
    """An embedder that counts each letter and digit of a text."""

    name = "letters"

    def embed(self, texts):
        letters = "abcdefghijklmnopqrstuvwxyz0123456789"
        return np.array([[text.count(letter) + 0.1 for letter in letters] for text in texts], np.float32)


def swarm_spec(**options):
    return Spec("swarm", {"embedder": LetterCounts(), "agents": 2, "rounds": 2, **options})


@pytest.mark.parametrize(
    ("links", "graph", "notes"),
    [
        (
            None,
            ["links"],
            ["the graph has no links, so walks cannot leave their start"],
        ),
        (
            lambda i: [f"D{i}"],
            ["links"],
            [
                "12 links of the graph lead to no document, 0 do",
                "the graph has no links, so walks cannot leave their start",
            ],
        ),
        (
            lambda i: [f"d{i + 1}", "gone"],  # d11 links to d12, which does not exist
            ["links"],
            ["13 links of the graph lead to no document, 11 do"],
        ),
        (None, ["links", "knn"], ["links adds no links; the graph has only those of knn(neighbours=8)"]),
        (lambda i: [f"d{(i + 1) % N}"], ["links", "knn"], []),
    ],
)
def test_run_graph_without_links_adds_note(links, graph, notes):
    result = run(make_dataset(links), {"mine": swarm_spec(graph=graph)}, repeats=2)
    graph_notes = [note for note in result.notes if "graph" in note]
    assert graph_notes == [f"mine: {note}" for note in notes]


def test_run_reranker_graph_without_links_adds_note():
    reranked = Spec("pipeline", {"of": "bm25", "reranker": swarm_spec(graph=["links"])})
    result = run(make_dataset(), {"reranked": reranked}, repeats=2)
    assert "reranked: the graph has no links, so walks cannot leave their start" in result.notes


def test_run_random_system_with_one_trial_adds_note():
    note = "mine: its results are random; measure their variation with --repeats 5"
    linked = make_dataset(lambda i: [f"d{(i + 1) % N}"])
    assert note in run(linked, {"mine": swarm_spec(graph=["links"])}).notes
    assert note not in run(linked, {"mine": swarm_spec(graph=["links"])}, repeats=2).notes
    steady = Spec("pagerank", {"embedder": LetterCounts(), "graph": ["links"]})
    assert note not in run(linked, {"mine": steady}).notes
    assert note not in run(linked, {"mine": second_rank}).notes


def test_cli_run_equal_notes_of_several_systems_are_merged(tmp_path):
    systems = ["-s", "swarm(graph=knn)", "-s", "graphflow(graph=knn)"]
    result = run_cli("run", "synthetic:needles(documents=40, queries=5)", *systems, "-o", "x", cwd=tmp_path)
    random_notes = [line for line in result.stderr.splitlines() if "--repeats 5" in line]
    assert random_notes == [
        "note: swarm(graph=knn), graphflow(graph=knn): its results are random; measure their variation with --repeats 5"
    ]


# Contents of the folder


@pytest.mark.slow
def test_cli_run_notes_runs_omitted_from_report(tmp_path):
    data = "synthetic:needles(documents=40, queries=5)"
    first = run_cli("run", data, "-s", "bm25", "-s", "b=bm25(b=0.1)", "-o", "x y", cwd=tmp_path)
    assert "shows all" not in first.stderr
    second = run_cli("run", data, "-s", "c=bm25(k1=2)", "-o", "x y", cwd=tmp_path)
    note = "note: the report is of c alone; x y also has b, bm25: `ragauge report 'x y'` shows all"
    assert note in second.stderr.splitlines()
    report = run_cli("report", "x y", "-o", "all.csv", cwd=tmp_path)
    assert report.exit_code == 0
    assert {line.split(",")[0] for line in (tmp_path / "all.csv").read_text().splitlines()[1:]} == {"b", "bm25", "c"}


def test_run_unbuildable_system_leaves_no_folder(tmp_path):
    systems = {"agents=0": swarm_spec(agents=0), "prior": swarm_spec(prior="citations")}
    with pytest.raises(BadInput, match="agents"):
        run(make_dataset(), systems, out=tmp_path / "x")
    assert list(tmp_path.iterdir()) == []
    result = run(make_dataset(), {"second": second_rank, **systems}, out=tmp_path / "x", allow_failures=True)
    assert list(result.failures) == ["agents=0", "prior"]
    assert sorted(path.name for path in (tmp_path / "x").iterdir() if path.is_dir()) == ["second"]


def test_run_interrupted_keeps_finished_answers(tmp_path):
    calls = []

    def interrupted(query, k):
        calls.append(query)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return second_rank(query, k)

    with pytest.raises(KeyboardInterrupt):
        run(make_dataset(), {"stops": interrupted}, out=tmp_path, warmup=0)
    run(make_dataset(), {"stops": interrupted}, out=tmp_path, warmup=0)
    assert len(calls) == N + 1


# Build times


def test_system_builder_shared_parts_count_for_every_system(monkeypatch):
    """Use a simulated clock: embedding the documents takes 100 s, linking 10 s, and everything else no time."""
    clock = [0.0]
    monkeypatch.setattr("ragauge.systems.builder.time.perf_counter", lambda: clock[0])

    class SlowEmbedder(LetterCounts):
        def embed(self, texts):
            clock[0] += 100 if len(texts) > 1 else 0
            return super().embed(texts)

    class SlowGraph:
        name = "linking"

        def link(self, documents, vectors):
            clock[0] += 10
            return LinkArrays(np.arange(N - 1), np.arange(1, N), np.ones(N - 1))

    shared = {"embedder": SlowEmbedder(), "graph": [SlowGraph()]}
    walker = Spec("swarm", shared)
    systems = {
        "first": walker,
        "second": Spec("graphflow", shared),
        "reranked": Spec("pipeline", {"of": Spec("pagerank", shared), "reranker": walker}),
        "bm25": Spec("bm25"),
    }
    builder = SystemBuilder(make_dataset().documents, systems)

    async def build_all():
        for name in systems:
            async with builder.open(name):
                pass

    asyncio.run(build_all())
    assert {name: builder.build_seconds(name) for name in systems} == {
        "first": 110,
        "second": 110,
        "reranked": 110,
        "bm25": 0,
    }


# Errors


@pytest.mark.parametrize(
    ("family", "description", "message", "hint"),
    [
        (
            "retrievers",
            "swarm(agnets=5)",
            "`swarm` has no option `agnets`",
            "did you mean `agents`? Options: embedder, ",
        ),
        ("graphs", "knn(neighbors=8)", "`knn` has no option `neighbors`", "did you mean `neighbours`? Options: neigh"),
        ("retrievers", "swarm(zzz=5)", "`swarm` has no option `zzz`", "options: embedder, graph, seeds, "),
        ("retrievers", "swarm(terrain=5)", "`swarm` has no option `terrain`", "options: embedder, graph, seeds, "),
        (
            "retrievers",
            "pipeline(reranker=swarm(agnets=5))",
            "`swarm` has no option `agnets`",
            "did you mean `agents`?",
        ),
        ("retrievers", "swarm(explore=yes)", "`swarm(explore=yes)`: explore must be a number, got yes", ""),
    ],
)
def test_check_spec_invalid_option_error_suggests_nearest(family, description, message, hint):
    with pytest.raises(BadInput) as error:
        check_spec(family, description)
    assert error.value.message == message
    assert (error.value.hint or "").startswith(hint)


def test_cli_run_error_names_system_once(tmp_path):
    with pytest.raises(BadInput) as error:
        run_cli("run", "synthetic:needles", "-s", "swarm(explore=yes)", cwd=tmp_path)
    assert error.value.message == "`swarm(explore=yes)`: explore must be a number, got yes"


def test_run_text_prior_error_names_value():
    with pytest.raises(BadInput, match=r"a number called `kind` in its metadata, e\.g\. 'tool' is not a number"):
        run(make_dataset(kind="tool"), {"mine": swarm_spec(prior="kind")})


# Experiment files


STUDY = """
dataset = ["synthetic:duplicates(documents=40, queries=5)", "synthetic:duplicates(documents=50, queries=5)"]
measures = ["mrr", "recall@5", "hit_rate@5", "ndcg@5"]
baseline = "words"
repeats = 2

[systems.words]
kind = "bm25"

[systems.words-flat]
kind = "bm25"
b = 0.0

[systems.walks]
kind = "graphflow"
graph = "knn"
"""


@pytest.fixture
def study_folder(tmp_path):
    (tmp_path / "study.toml").write_text(STUDY)
    return tmp_path


def test_cli_run_baseline_not_selected_adds_note(study_folder):
    result = run_cli("run", "study.toml", "-s", "words-flat", cwd=study_folder)
    assert result.exit_code == 0
    assert "note: there is no baseline: the file's, words, is not among the systems (-s words)" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "kind", "message", "hint"),
    [
        (
            ["-s", "words-flta"],
            UnknownName,
            "unknown system `words-flta`",
            "did you mean `words-flat`? The file has ",
        ),
        (
            ["-s", "bm26"],
            UnknownName,
            "unknown system `bm26`",
            "did you mean `bm25`? The file has words, words-flat",
        ),
        (["-b", "wrods"], UnknownName, "unknown system `wrods`", "did you mean `words`? Use a system as the baseline"),
        (
            ["-s", "words-flat", "-b", "words"],
            BadInput,
            "the baseline `words` is in the file, but not among the systems to run",
            "add `-s words`",
        ),
    ],
)
def test_cli_run_unknown_name_raises_error_before_run(study_folder, arguments, kind, message, hint):
    with pytest.raises(kind) as error:
        run_cli("run", "study.toml", *arguments, cwd=study_folder)
    assert error.value.message == message
    assert error.value.hint.startswith(hint)
    assert not (study_folder / "runs").exists()


def test_cli_run_selected_system_includes_referenced_systems(tmp_path):
    toml = """
        dataset = "synthetic:needles(documents=40, queries=5)"
        [systems]
        words = "bm25(b=0.1)"
        both = "hybrid(of=words+bm25)"
        reranked = "pipeline(of=both, reranker=mmr(embedder=words))"
        round = "filtered(of=about, a=b)"
        about = "filtered(of=round, a=b)"
    """
    (tmp_path / "made.toml").write_text(toml)
    result = run_cli("run", "made.toml", "-s", "reranked", cwd=tmp_path)
    assert result.exit_code == 0
    manifest = manifest_value(tmp_path / "runs" / "made" / "reranked", "system")
    hybrid = "hybrid(of=bm25(b=0.1)+bm25)"
    assert manifest["description"] == f"pipeline(of={hybrid}, reranker=mmr(embedder=words))"
    second = run_cli("run", "made.toml", "-s", "words", "-s", "both", "-s", "reranked", cwd=tmp_path)
    assert "note: reranked: reused; made " in second.stderr  # the other selected systems do not change it
    with pytest.raises(BadInput, match="contains itself"):
        run_cli("run", "made.toml", "-s", "round", cwd=tmp_path)


@pytest.mark.slow
def test_cli_run_study_explains_columns_once_and_lists_hidden_measures(study_folder):
    result = run_cli("run", "study.toml", cwd=study_folder)
    assert result.exit_code == 0
    assert result.stdout.count("mrr over trials") == 2
    assert result.stderr.count("note: min, max: ") == 1
    assert "note: summary.csv and report.md also have hit_rate@5, ndcg@5\n" in result.stderr
