"""Per-query scores from tables and from reports of rig: accepted forms, direction of measures, and errors."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from ragauge.files.trials import is_trials_file
from typer.testing import CliRunner

import ragauge
from ragauge.cli.app import build_app
from ragauge.core.errors import BadInput, Incomparable
from ragauge.evaluation.directions import is_lower_better
from ragauge.files.scores import is_scores_file, read_scores
from ragauge.files.source import InputFile
from ragauge.files.table_files import read_header
from ragauge.files.table_rows import read_tags
from ragauge.measures.answers import ANSWER_MEASURES
from ragauge.measures.names import parse_measure
from ragauge.measures.registry import MEASURE_REGISTRY

SWARM = """Hit@1,MRR,DR@20,latency,method,query_id,gt_count,seed,query_complexity
1,1.0,0.5,0.01,GraphFlow,1,2,42,simple
0,0.5,0.25,0.02,GraphFlow,2,7,42,complex
1,1.0,0.5,0.01,GraphFlow,1,2,43,simple
0,0.25,0.25,0.02,GraphFlow,2,7,43,complex
1,1.0,1.0,0.03,Swarm,1,2,42,simple
1,1.0,0.75,0.04,Swarm,2,7,42,complex
0,0.5,1.0,0.03,Swarm,1,2,43,simple
1,1.0,0.75,0.04,Swarm,2,7,43,complex
"""


def run_cli(*arguments):
    return CliRunner().invoke(build_app(), list(map(str, arguments)))


def write_text(path, text):
    path.write_text(text)
    return str(path)


def error_message(path):
    with pytest.raises(BadInput) as error:
        read_scores(str(path))
    return str(error.value)


# Accepted tables


def test_compare_swarm_table_over_queries_and_seeds(tmp_path):
    path = write_text(tmp_path / "swarm.csv", SWARM)
    assert is_scores_file(path)
    result = ragauge.compare(path, baseline="GraphFlow", by="complexity")
    assert result.measures == ["Hit@1", "MRR", "DR@20", "latency"]
    row = result.find("Swarm", "MRR")
    assert row.seeds is not None
    assert list(row.seeds.labels) == ["42", "43"]
    assert list(row.seeds.differences) == pytest.approx([0.25, 0.125])
    assert result.find("Swarm", "latency").lower_is_better
    assert (result.find("Swarm", "latency").wins, result.find("Swarm", "latency").losses) == (0, 2)
    assert {stratum_row.stratum for stratum_row in result.strata} == {"complexity=simple", "complexity=complex"}


def test_read_scores_evaluate_csv_round_trip(tmp_path):
    qrels = write_text(tmp_path / "qrels", "q1 0 a 1\nq2 0 b 1\n")
    old = write_text(tmp_path / "old.run", "q1 Q0 x 1 2 t\nq1 Q0 a 2 1 t\nq2 Q0 x 1 1 t\n")
    new = write_text(tmp_path / "new.run", "q1 Q0 a 1 2 t\nq2 Q0 b 1 1 t\n")
    names = ["mrr", "unjudged@2"]
    result = run_cli("evaluate", qrels, old, new, "--csv", "-q", *(f"-m{name}" for name in names))
    restored, tags = read_scores(write_text(tmp_path / "scores.csv", result.stdout))
    expected = ragauge.evaluate(qrels, {"old": old, "new": new}, names)
    assert tags == {}
    for name in ("old", "new"):
        assert restored[name].queries == ["q1", "q2"]
        assert dict(restored[name].means) == pytest.approx(dict(expected[name].means))
        assert restored[name].lower_is_better == expected[name].lower_is_better == {"unjudged@2"}


WIDE = pl.DataFrame({"system": ["a", "a", "b", "b"], "qid": [1, 2, 1, 2], "ndcg": [0.5, None, 0.25, 1.0]})


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "ndjson", "parquet"])
def test_read_scores_every_table_format_gives_same_scores(tmp_path, ending):
    path = tmp_path / f"t.{ending}"
    if ending == "parquet":
        WIDE.write_parquet(path)
    elif ending.endswith("json") or ending == "jsonl":
        WIDE.write_ndjson(path)
    else:
        WIDE.write_csv(path, separator="\t" if ending == "tsv" else ",")
    assert is_scores_file(str(path))
    scores, _ = read_scores(str(path))
    assert scores["a"].queries == scores["b"].queries == ["1", "2"]
    np.testing.assert_array_equal(scores["a"].values["ndcg"], [0.5, np.nan])
    assert scores["a"].unscored["ndcg"] == {"2": "no value in the file"}
    assert scores["b"].means["ndcg"] == 0.625


def test_read_scores_ignores_quotes_blanks_and_unnamed_index(tmp_path):
    text = '"", "query_id", ndcg ,"said"\n0, q1 ,0.5,"a\nb"\n1,"q2",NaN,\n'
    scores, _ = read_scores(write_text(tmp_path / "t.csv", text))
    assert scores["t"].queries == ["q1", "q2"]
    assert scores["t"].measures == ["ndcg"]
    assert scores["t"].per_query["ndcg"] == {"q1": 0.5}


def test_read_scores_accepts_very_long_cell(tmp_path):
    scores, _ = read_scores(write_text(tmp_path / "t.csv", f"query,answer,mrr\nq1,{'so ' * 100_000},1\n"))
    assert scores["t"].means["mrr"] == 1.0


def test_read_scores_ignores_blank_lines(tmp_path):
    csv = write_text(tmp_path / "t.csv", "\nquery,mrr\n\nq1,1\n  \n,\nq2,0\n\n")
    jsonl = write_text(tmp_path / "t.jsonl", '\n{"query": "q1", "mrr": 1}\n\n{"query": "q2", "mrr": 0}\n\n')
    for path in (csv, jsonl):
        scores, _ = read_scores(path)
        assert scores["t"].per_query["mrr"] == {"q1": 1.0, "q2": 0.0}


# Direction of measures


def test_is_lower_better_follows_unit_in_cost_name():
    costs = ["latency", "p95_ms", "Latency (s)", "query latency", "build_seconds", "t_ns", "index_bytes", "wait_sec"]
    qualities = ["recall_second_stage", "ndcg_msmarco", "translatency", "mrr", "ms", "ndcg_ms_marco"]
    assert [name for name in (*costs, *qualities) if is_lower_better(name)] == costs


@pytest.mark.parametrize("name", MEASURE_REGISTRY)
def test_is_lower_better_matches_every_ranking_measure(name):
    cutoff = {"rank": "@10", "rank?": "@10", "level": "@0.5"}.get(MEASURE_REGISTRY[name].cutoff, "")
    measure = str(parse_measure(f"{name}{cutoff}"))
    assert is_lower_better(measure) is MEASURE_REGISTRY[name].lower_is_better
    assert is_lower_better(name) is MEASURE_REGISTRY[name].lower_is_better


@pytest.mark.parametrize("name", ANSWER_MEASURES)
def test_is_lower_better_matches_every_answer_measure(name):
    assert is_lower_better(name) is ANSWER_MEASURES[name].lower_is_better


def test_is_lower_better_unknown_name_is_none():
    assert [is_lower_better(name) for name in ("wer", "cost", "error_rate", "score")] == [None] * 4


def write_two_tables(tmp_path, measure, header="run,query,measure,value", state=""):
    """Write two tables with scores of 12 queries: `honest` has about 0.1 per query, `liar` about 0.9."""
    tables = {"honest": 0.1, "liar": 0.9}
    return [
        write_text(
            tmp_path / f"{name}.csv",
            "\n".join([header, *(f"{name},q{i},{measure},{value + i / 1000}{state}" for i in range(12)), ""]),
        )
        for name, value in tables.items()
    ]


@pytest.mark.parametrize("measure", ["hallucination", "contradiction", "noise_sensitivity(chunks=relevant)"])
def test_cli_gate_and_compare_know_direction_of_answer_measures(tmp_path, measure):
    header = "run;query;measure;value".replace(";", ",")
    low, high = write_two_tables(tmp_path, f'"{measure}"', header)
    for rule in ("not worse", "rise <= 0.05", "non-inferior by 0.05"):
        result = run_cli("gate", high, "-b", low, "-r", f"{measure} {rule}")
        assert result.exit_code == 1, result.output
        assert run_cli("gate", low, "-b", high, "-r", f"{measure} {rule}").exit_code == 0
    result = run_cli("compare", low, high, "-b", "honest")
    assert f"{measure}: liar is significantly worse than honest" in " ".join(result.stdout.split())
    assert f"lower is better, judging by the name: {measure}" in result.stderr.replace("\n", " ")


@pytest.mark.parametrize("rule", ["wer not worse", "wer drop <= 0.1", "wer rise <= 0.1", "wer better"])
def test_gate_unknown_direction_raises_error(tmp_path, rule):
    low, high = write_two_tables(tmp_path, "wer")
    with pytest.raises(BadInput, match="the direction of `wer` is unknown") as refused:
        ragauge.gate(high, rule, baseline=low)
    assert "--lower-is-better wer" in str(refused.value)
    assert run_cli("gate", high, "-b", low, "-r", rule).exception.exit_code == 2


def test_gate_uses_given_direction(tmp_path):
    low, high = write_two_tables(tmp_path, "wer")
    lower_is_better = ("--lower-is-better", "wer", "-r", "wer not worse")
    assert run_cli("gate", high, "-b", low, *lower_is_better).exit_code == 1
    assert run_cli("gate", low, "-b", high, *lower_is_better).exit_code == 0
    assert run_cli("gate", high, "-b", low, "--higher-is-better", "wer", "-r", "wer not worse").exit_code == 0
    assert run_cli("gate", low, "-r", "wer <= 0.5").exit_code == 0  # an absolute limit needs no direction
    rules = write_text(tmp_path / "gate.toml", 'rules = ["wer not worse"]\nlower_is_better = ["wer"]\n')
    assert run_cli("gate", high, "-b", low, "--rules", rules).exit_code == 1
    assert not ragauge.gate(high, "wer rise <= 0.1", baseline=low, lower_is_better=["wer"])


def test_gate_uses_direction_column_of_table(tmp_path):
    header = "run,query,measure,value,lower_is_better"
    low, high = write_two_tables(tmp_path, "wer", header, ",true")
    assert run_cli("gate", high, "-b", low, "-r", "wer not worse").exit_code == 1
    result = run_cli("compare", low, high, "-b", "honest")
    assert "wer: liar is significantly worse than honest" in result.stdout
    assert "direction unknown" not in result.stderr
    low, high = write_two_tables(tmp_path, "hallucination", header, ",no")  # a stated direction overrides the name
    assert run_cli("gate", high, "-b", low, "-r", "hallucination not worse").exit_code == 0


def test_compare_reports_assumed_direction(tmp_path):
    low, high = write_two_tables(tmp_path, "wer")
    result = run_cli("compare", low, high, "-b", "honest")
    stderr = result.stderr.replace("\n", " ")
    assert (
        "direction unknown, higher assumed to be better: wer; if lower is better, add `--lower-is-better wer`" in stderr
    )
    assert "liar is significantly better than" in result.stdout
    result = run_cli("compare", low, high, "-b", "honest", "--lower-is-better", "wer")
    assert "liar is significantly worse than" in result.stdout
    assert "assumed" not in result.stderr
    numbers = {name: {"wer": {f"q{i}": value + i / 100 for i in range(9)}} for name, value in (("a", 0.1), ("b", 0.9))}
    assert ragauge.compare(numbers, "a", lower_is_better=["wer"]).find("b").better is False
    assert "higher assumed to be better: wer" in " ".join(ragauge.compare(numbers, "a").notes)


def test_report_ranks_by_given_direction(tmp_path):
    tables = write_two_tables(tmp_path, "wer")
    assert ragauge.report(tables, lower_is_better=["wer"]).ranked()[0] == "honest"
    assert any("higher assumed to be better: wer" in note for note in ragauge.report(tables).notes)
    with pytest.raises(ragauge.UnknownName, match="unknown measure `cer`"):
        ragauge.report(tables[0], lower_is_better=["cer"])


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("query,measure,value,lower_is_better\nq1,wer,1,down\n", "t.csv:2: lower_is_better of wer: expected true or"),
        ("query,measure,value,lower_is_better\nq1,wer,1,true\nq2,wer,1,false\n", "t.csv:3: lower_is_better of wer is"),
        ("query,wer,lower_is_better\nq1,1,true\n", "column `lower_is_better` without a column `measure`"),
    ],
)
def test_read_scores_invalid_direction_column_raises_error(tmp_path, table, message):
    assert message in error_message(write_text(tmp_path / "t.csv", table))


def test_gate_and_compare_contradictory_directions_raise_error(tmp_path):
    header = "run,query,measure,value,lower_is_better"
    (tmp_path / "b").mkdir()
    low, _ = write_two_tables(tmp_path, "wer", header, ",true")
    _, high = write_two_tables(tmp_path / "b", "wer", header, ",false")
    with pytest.raises(Incomparable, match="wer is lower-is-better in honest, but not in liar"):
        ragauge.compare([low, high])
    with pytest.raises(Incomparable, match="wer is lower-is-better in honest"):
        ragauge.gate(low, "wer not worse", baseline=high)
    with pytest.raises(BadInput, match="`wer` is a lower-is-better measure, but --higher-is-better names it"):
        ragauge.gate(low, "wer <= 1", higher_is_better=["wer"])
    with pytest.raises(BadInput, match="named by --lower-is-better and by --higher-is-better"):
        ragauge.compare([low, high], lower_is_better=["wer"], higher_is_better=["wer"])
    with pytest.raises(ragauge.UnknownName, match="unknown measure `cer`"):
        ragauge.gate(low, "wer <= 1", lower_is_better=["cer"])
    with pytest.raises(BadInput, match="`mrr` is computed from rankings and has a known direction"):
        ragauge.gate({"q": {"a": 1.0}}, "mrr >= 0.001", qrels={"q": {"a": 1}}, lower_is_better=["mrr"])


def test_custom_measure_direction_is_its_attribute(tmp_path):
    def wer(query):
        return float(len(query.ranks))

    qrels, run = {"q1": {"a": 1}, "q2": {"b": 1}}, {"q1": {"a": 1.0}, "q2": {"x": 1.0}}
    scores = ragauge.evaluate(qrels, run, [wer, "mrr"])
    assert scores.is_lower_better("wer") is None
    with pytest.raises(BadInput, match="direction of `wer` is unknown"):
        ragauge.gate(scores, "wer not worse", baseline=replace(scores, run="old"))
    wer.lower_is_better = True
    scores = ragauge.evaluate(qrels, run, [wer, "mrr"])
    assert scores.lower_is_better == {"wer"}
    scores.to_polars().write_csv(tmp_path / "own.csv")
    by_system, _ = read_scores(str(tmp_path / "own.csv"))
    (restored,) = by_system.values()
    assert restored.lower_is_better == {"wer"}
    assert not restored.direction_unstated


# Judges and conventions


def test_compare_other_judge_or_convention_raises_error(tmp_path):
    text = (
        "system,query,measure,value,{column}\na,q1,mrr,1,{one}\na,q2,mrr,0,{one}\nb,q1,mrr,1,{two}\nb,q2,mrr,1,{two}\n"
    )
    for column, first, second in (("judge", "gpt", "claude"), ("Convention", "trec9", "beir"), ("judge", "gpt", "")):
        path = write_text(tmp_path / "t.csv", text.format(column=column, one=first, two=second))
        with pytest.raises(Incomparable, match=f"`{first}`"):
            ragauge.compare(path, "a")
        path = write_text(tmp_path / "t.csv", text.format(column=column, one=first, two=first))
        assert ragauge.compare(path, "a").find("b").difference == 0.5


def test_read_scores_judge_is_name_and_fingerprint(tmp_path):
    text = "query,judge,judge_fingerprint,convention,mrr\nq1,gpt,f00,rig,1\nq2,gpt,f00,rig,0\n"
    scores, _ = read_scores(write_text(tmp_path / "t.csv", text))
    assert (scores["t"].judge, scores["t"].convention, scores["t"].measures) == ("gpt f00", "rig", ["mrr"])


def test_read_scores_two_judges_of_one_system_raises_error(tmp_path):
    rows = "system,seed,query,mrr,judge\na,1,q1,1,gpt\na,1,q2,1,{}\n"
    message = error_message(write_text(tmp_path / "t.csv", rows.format("claude")))
    assert "t.csv:3: the judge of a is `gpt` above and `claude` here" in message
    assert "t.csv:3: the judge of a is `gpt` above and blank here" in error_message(
        write_text(tmp_path / "t.csv", rows.format(""))
    )
    unscored = write_text(tmp_path / "t.csv", "query,mrr,judge\nq1,1,gpt\nq2,,\n")
    assert read_scores(unscored)[0]["t"].judge == "gpt"
    by_seed = write_text(tmp_path / "t.csv", "system,seed,query,mrr,judge\na,1,q1,1,gpt\na,2,q1,1,claude\n")
    assert [scores.judge for scores in read_scores(by_seed)[0]["a"].values()] == ["gpt", "claude"]


# Invalid tables


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("run,query,measure,value\na,1,mrr,x\n", "s.csv:2: mrr must be a number, got `x`"),
        ("run,query,measure,value\na,1,mrr,1\na,1,mrr,0\n", "s.csv:3: mrr of query `1` of a appears more than once"),
        ("run,query,measure,value\na,1,mrr,inf\n", "s.csv:2: mrr must be a finite number, got `inf`"),
        ("run,query,measure,value\na,1,mrr,1\n\na,2,mrr,1e999\n", "s.csv:4: mrr must be a finite number, got `1e999`"),
        ("query,mrr\nq1,1\nq2,-Infinity\n", "s.csv:3: mrr must be a finite number, got `-Infinity`"),
        ("run,query,words\na,1,x\n", "no column contains numbers"),
        ("query,mrr\n", "no rows"),
        ("", "no rows"),
        ("run,measure,value\na,mrr,1\n", "a query column is missing; found run, measure, value"),
        ("query,mrr\nq1,1\n,1\n", "s.csv:3: the query is missing"),
        ('query,mrr\nq1,1\n\n" ",1\n', "s.csv:4: the query is missing"),
        ("query,system,mrr\nq1,a,1\nq2,,1\n", "s.csv:3: the system is missing"),
        ("query,Seed,mrr\nq1,1,1\nq2,,1\n", "s.csv:3: the seed is missing"),
        ("query,measure,value\nq1,mrr,1\nq2,,1\n", "s.csv:3: the measure is missing"),
        ('query,said,mrr\nq1,"a\nb",1\nq1,c,1\n', "s.csv:4: mrr of query `q1` of s appears more than once"),
        ("query,mrr\nq1,1\nq2\n", "s.csv:3: expected 2 cells as in the header, got 1"),
        ("query,mrr\nq1,0,5\n", "s.csv:2: expected 2 cells as in the header, got 3"),
        ("query,mrr,mrr\nq1,1,0\n", "s.csv:1: duplicate column `mrr`"),
        ('query,mrr\nq1,"1\n', "s.csv:2: the table cannot be read (unexpected end of data)"),
    ],
)
def test_read_scores_invalid_csv_raises_with_line(tmp_path, text, message):
    assert message in error_message(write_text(tmp_path / "s.csv", text))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"query": "q1", "mrr": 1}\n\n{"query": "", "mrr": 1}\n', "s.jsonl:3: the query is missing"),
        ('{"query": "q1", "mrr": 1}\n\n{"mrr": 1}\n', "s.jsonl:3: the query is missing"),
        (
            '{"query": "q1", "mrr": 1}\n\n{"query": "q2", "mrr": 1e999}\n',
            "s.jsonl:3: mrr must be a finite number, got `inf`",
        ),
        ('\n{"query": "q1", "measure": "mrr", "value": true}\n', "s.jsonl:2: mrr must be a number, got `True`"),
        (
            '{"query": "q1", "mrr": 1}\n\n{"query": "q1", "mrr": 0}\n',
            "s.jsonl:3: mrr of query `q1` of s appears more than once",
        ),
        ('{"query": "q1", "mrr": 1}\n[1]\n', "s.jsonl:2: expected an object"),
    ],
)
def test_read_scores_invalid_jsonl_raises_with_line(tmp_path, text, message):
    assert message in error_message(write_text(tmp_path / "s.jsonl", text))


def test_read_scores_parquet_errors_have_row_number(tmp_path):
    pl.DataFrame({"query": ["q1", None, None], "mrr": [1.0, None, 0.5]}).write_parquet(tmp_path / "t.parquet")
    assert "t.parquet: the query of row 3 is missing" in error_message(tmp_path / "t.parquet")


def test_read_scores_not_a_table_raises_error(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder.csv").mkdir()
    text = write_text(tmp_path / "t.txt", "query,mrr\nq1,1\n")
    for path in (tmp_path / "folder", text, "-", "no" * 3000):
        assert "not a table of scores" in error_message(path)
        assert not is_scores_file(str(path))
    assert "cannot be read (Is a directory)" in error_message(tmp_path / "folder.csv")
    assert not is_scores_file(str(tmp_path / "folder.csv"))
    (tmp_path / "torn.parquet").write_bytes(b"PAR1")
    for read in (is_scores_file, read_scores):
        with pytest.raises(BadInput, match="cannot be read"):
            read(str(tmp_path / "torn.parquet"))


def test_read_scores_other_encoding_raises_with_line(tmp_path):
    (tmp_path / "t.csv").write_bytes("query,mrr\nqü,1\n".encode("latin-1"))
    assert "t.csv:2: the table cannot be read ('utf-8' codec" in error_message(tmp_path / "t.csv")


# Headers


@pytest.mark.parametrize(
    ("name", "text", "columns"),
    [
        ("t.csv", '"task","success"\na,1\n', ["task", "success"]),
        ("t.csv", 'task, "success, or not"\na,1\n', ["task", "success, or not"]),
        ("t.tsv", '\n"task"\tsuccess\na\t1\n', ["task", "success"]),
        ("t.jsonl", '\n{"task": {"doc": 1}, "su,cc:ess": 1}\n', ["task", "su,cc:ess"]),
        ("t.jsonl", "no JSON\n", []),
        ("t.jsonl", "[1]\n", []),
        ("t.csv", 'a,"b', []),
        ("t.csv", "", []),
    ],
)
def test_read_header_returns_column_names(tmp_path, name, text, columns):
    source = InputFile(write_text(tmp_path / name, text))
    assert read_header(source, source.ending.removeprefix(".")) == columns


def test_is_scores_file_handles_quoted_headers_and_nested_objects(tmp_path):
    assert is_trials_file(write_text(tmp_path / "a.csv", '"task","success"\n"a",1\n'))
    assert is_scores_file(write_text(tmp_path / "b.csv", '"query_id","ndcg@10"\n"a",1\n'))
    assert is_scores_file(write_text(tmp_path / "c.jsonl", '{"mrr": 1, "top": {"doc": "d1"}, "query": "q1"}\n'))
    assert not is_scores_file(write_text(tmp_path / "d.jsonl", '{"said": "query: 1", "mrr": 1}\n'))
    assert not is_scores_file(write_text(tmp_path / "e.csv", '"query","doc","score"\nq,d,1\n'))
    assert not is_trials_file(write_text(tmp_path / "e.csv", '"query","doc","score"\nq,d,1\n'))


def test_read_tags_ignores_blank_lines_and_rejects_missing_query(tmp_path):
    path = write_text(tmp_path / "tags.csv", '"query","kind"\n\nq1,easy\nq2,\n')
    assert read_tags(path) == {"q1": {"kind": "easy"}, "q2": {}}
    with pytest.raises(BadInput, match=r"tags\.csv:4: the query is missing"):
        read_tags(write_text(tmp_path / "tags.csv", "query,kind\nq1,easy\n\n,hard\n"))


# Reports of rig


def write_rig_report(path, per_query, **fields):
    content = {
        "judge_fingerprint": "gpt",
        "metrics": [{"metric": "recall@10", "n": 5, "per_query": per_query}],
        **fields,
    }
    return write_text(path, json.dumps(content, indent=1))


def test_cli_compare_rig_reports_requires_same_judge(tmp_path):
    def write_report(name, shift, judge="gpt"):
        return write_rig_report(
            tmp_path / f"{name}.json", [[f"q{i}", 0.1 * i + shift] for i in range(5)], judge_fingerprint=judge
        )

    old, new, other = write_report("old", 0.0), write_report("new", 0.05), write_report("other", 0.0, "claude")
    result = run_cli("compare", old, new, "-b", "old", "--json")
    assert json.loads(result.stdout)["comparisons"][0]["difference"] == pytest.approx(0.05)
    result = run_cli("compare", old, other, "-b", "old")
    assert isinstance(result.exception, Incomparable)
    assert "judged by `gpt`, other by `claude`" in str(result.exception)


@pytest.mark.parametrize(
    ("per_query", "message"),
    [
        ([["q1", 1], ["q1", 0]], "r.json: recall@10 of query `q1` appears more than once"),
        ([["q1", float("inf")]], "r.json: recall@10 of query `q1` must be a finite number, got `inf`"),
        ([["q1", "x"]], "r.json: recall@10 of query `q1` must be a number, got `x`"),
        ([["", 1]], "r.json: a query of recall@10 is missing"),
        ([[None, 1]], "r.json: a query of recall@10 is missing"),
        ([["q1"]], "r.json: not a report of rig"),
        ({"q1": 1}, "r.json: not a report of rig"),
        (["q1"], "r.json: not a report of rig"),
    ],
)
def test_read_scores_invalid_rig_report_raises_error(tmp_path, per_query, message):
    assert message in error_message(write_rig_report(tmp_path / "r.json", per_query))


def test_read_scores_rig_duplicate_metric_raises_and_null_is_missing(tmp_path):
    duplicate = [{"metric": "mrr", "per_query": [["q1", 1]]}, {"metric": "mrr", "per_query": [["q2", 1]]}]
    assert "r.json: mrr appears more than once" in error_message(
        write_rig_report(tmp_path / "r.json", [], metrics=duplicate)
    )
    assert "not a report of rig" in error_message(write_rig_report(tmp_path / "r.json", [], metrics=[]))
    assert "not a report of rig" in error_message(write_text(tmp_path / "r.json", '["per_query"]'))
    path = write_rig_report(tmp_path / "r.json", [["q1", None], ["q2", float("nan")], ["q3", 0.5]], convention="rig")
    scores, _ = read_scores(path)
    assert scores["r"].per_query["recall@10"] == {"q3": 0.5}
    assert (scores["r"].judge, scores["r"].convention) == ("gpt", "rig")
