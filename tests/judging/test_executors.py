"""judge on an executor: the same verdicts and scores to the last bit, whoever makes the calls and whoever dies."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import pickle
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import CancelledError, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import closing
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

import literal_judge
import ragauge
from command import forked
from ragauge.compute import event_loops
from ragauge.core.errors import BackendFailed, BadInput
from ragauge.core.samples import Sample
from ragauge.judging import remote_calls
from ragauge.judging.reply_cache import REPLIES_FILE
from ragauge.models.chats import open_chat
from ragauge.models.chats.openai import OpenAIChat
from ragauge.models.chats.recorded import Recording, ScriptedChat
from worker_chats import Deadly, Fickle, Leaving, Literal, Located, Locked, Moody, Queueing, Single, Wiretap, Wordy

RAGAUGE = Path(sys.executable).parent / "ragauge"
MEASURES = ["faithfulness", "context_precision", "context_recall", "answer_relevance"]
THINGS = ["tower", "harbour", "bridge", "mill", "lighthouse", "market", "station"]


def sample(i: int) -> Sample:
    thing = THINGS[i % len(THINGS)]
    known = f"we know that the {thing} number {i} is in varn" if i % 4 else f"nobody has seen the {thing}"
    return Sample(
        f"s{i}",
        question=f"Where is the {thing}?",
        answer=f"the {thing} number {i} is in varn and it is {'red' if i % 3 else 'high'}. it is old.",
        contexts=(known, "it is high, they say", "ships come and go")[: 1 + i % 3],
        reference=f"the {thing} number {i} is in varn and it is old",
        metadata={"topic": thing},
    )


SAMPLES = [sample(i) for i in range(24)]


def processes(n: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(n, get_context("spawn"))


@pytest.fixture(scope="module")
def pools():
    with ThreadPoolExecutor(2) as threads, processes(2) as others:
        yield {"threads": threads, "processes": others}


@pytest.fixture(params=["threads", "processes", "cluster"])
def executor(request, pools):
    return pools.get(request.param) or request.getfixturevalue("workers").executor


@pytest.fixture
def server(chat_server):
    chat_server.answer = literal_judge.answer
    return chat_server


def judged(executor=None, samples=SAMPLES, measures=MEASURES, **how):
    return ragauge.judge(samples, measures, executor=executor, **{"embedder": "words", **how})


def outcome(found):
    """All of a result that is not a time."""
    values = {name: column.tobytes() for name, column in found.scores.values.items()}
    steps = [(row.step, row.calls, row.prompt_tokens, row.unread) for row in found.ledger]
    return (
        found.judge, found.identity, found.verdicts, values, found.scores.unscored, found.intervals, found.stopped,
        found.notes, list(found.verdicts), steps,
    )  # fmt: skip


def kept(folder):
    """All replies of a folder, but for when they came and how long it took."""
    columns = (
        "key, step, sample, text, prompt_tokens, completion_tokens, cached_tokens, finish, model, probabilities, how"
    )
    with closing(sqlite3.connect(folder / REPLIES_FILE)) as base:
        calls = base.execute("SELECT count(*) FROM calls").fetchone()[0]
        return calls, base.execute(f"SELECT {columns} FROM replies ORDER BY key").fetchall()


def whole(workers):
    """Wait for a worker that was killed: one that is killed again while it starts does not come back."""
    workers.executor._client.wait_for_workers(2, timeout=60)


def test_words_are_looked_at_elsewhere_to_the_same_bit(executor):
    seen = []
    found = judged(executor, progress=lambda done, total: seen.append((done, total)))
    assert outcome(found) == outcome(judged())
    assert len(found.intervals) > 1
    assert found.samples == SAMPLES
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})
    assert seen[-1] == (24, 24)


@pytest.mark.parametrize("n", [1, 3, 130])
def test_any_number_of_samples_is_judged_in_parts(n, executor):
    samples = [sample(i) for i in range(n)]
    assert outcome(judged(executor, samples)) == outcome(judged(samples=samples))


def test_a_judge_of_your_own_judges_elsewhere(executor):
    assert outcome(judged(executor, chat=Wordy())) == outcome(judged(chat=Wordy()))


def rooms_in_use():
    return [one for one in threading.enumerate() if one.name == "ragauge-room"]


def test_a_judge_with_a_lock_of_its_own_answers_in_one_loop_of_each_process(executor):
    assert outcome(judged(executor, chat=Queueing())) == outcome(judged(chat=Queueing()))


@pytest.mark.parametrize("first", ["threads", None])
@pytest.mark.parametrize("second", ["threads", None])
def test_a_judge_whose_lock_belongs_to_another_loop_is_refused(first, second, pools):
    judge = Queueing()
    judged(pools.get(first), chat=judge)
    with pytest.raises(BackendFailed, match="the judge wordy holds something of another event loop") as caught:
        judged(pools.get(second), chat=judge)
    assert "a new judge for every call of `judge`" in str(caught.value.hint)


def test_a_judge_that_wants_the_process_to_end_keeps_nobody_waiting(executor):
    with pytest.raises(BackendFailed, match="what was asked ended: SystemExit: 7"):
        judged(executor, chat=Leaving())


def test_judging_ends_the_thread_that_it_began(pools, monkeypatch):
    monkeypatch.setattr(
        event_loops, "IDLE_TIMEOUT_S", 1.0
    )  # a part that begins as the room is closed opens it again, for so long
    before = rooms_in_use()
    judged(pools["threads"], SAMPLES[:4])
    with pytest.raises(BackendFailed):
        judged(pools["threads"], SAMPLES[:4], chat=Leaving())
    until = time.monotonic() + 20
    while set(rooms_in_use()) - set(before) and time.monotonic() < until:
        time.sleep(0.01)
    assert not set(rooms_in_use()) - set(before)


def test_a_room_that_is_closed_over_work_gives_it_up_and_is_opened_again():
    room = event_loops.LoopThread(list)
    begun = threading.Event()

    async def forever(thing):
        begun.set()
        await asyncio.sleep(600)

    async def look(thing):
        thing.append(1)
        return thing

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(room.run, forever)
        assert begun.wait(20)
        asyncio.run(room.close())
        with pytest.raises(CancelledError):
            future.result(20)
    assert room.run(look) == [1]
    assert room.run(look) == [1, 1]
    asyncio.run(room.close())
    assert room.run(look) == [1]
    asyncio.run(room.close())


def test_a_worker_that_dies_over_words_loses_no_sample(workers):
    whole(workers)
    killed = []

    def look(done, total):
        if not killed:
            killed.append(workers.kill(1))

    samples = [sample(i) for i in range(600)]
    assert outcome(judged(workers.executor, samples, progress=look)) == outcome(judged(samples=samples))
    assert killed == [1]


def test_a_server_is_asked_the_same_from_elsewhere(server, executor, tmp_path):
    server.latency = 0.01
    chat = f"openai:small@{server.url}"
    plain = judged(chat=chat, folder=tmp_path / "here")
    calls = server.calls
    server.forget()
    found = judged(executor, chat=chat, folder=tmp_path / "elsewhere")
    assert outcome(found) == outcome(plain)
    assert server.calls == calls == len(kept(tmp_path / "here")[1])
    assert server.most <= 16
    assert kept(tmp_path / "elsewhere") == kept(tmp_path / "here")


def test_what_is_kept_is_asked_for_nowhere(workers, server, tmp_path):
    chat = f"openai:small@{server.url}"
    plain = judged(chat=chat, folder=tmp_path / "a")
    server.forget()
    assert outcome(judged(workers.executor, chat=chat, folder=tmp_path / "a"))[2:4] == outcome(plain)[2:4]
    assert server.calls == 0
    judged(workers.executor, chat=chat, folder=tmp_path / "b")
    server.forget()
    assert outcome(judged(chat=chat, folder=tmp_path / "b"))[2:4] == outcome(plain)[2:4]
    assert server.calls == 0


@pytest.mark.parametrize("victims", [1, 2])
def test_a_worker_killed_over_its_calls_costs_these_and_no_more(victims, workers, server, tmp_path):
    whole(workers)
    server.latency = 0.05
    chat = f"openai:small@{server.url}"
    plain = judged(chat=chat, folder=tmp_path / "here")
    calls = server.calls
    server.forget()
    killed = []

    def look(done, total):
        if done == 6:
            killed.append(workers.kill(victims))

    found = judged(workers.executor, chat=chat, folder=tmp_path / "elsewhere", progress=look, concurrency=8)
    assert killed == [victims]
    assert outcome(found) == outcome(plain)
    assert kept(tmp_path / "elsewhere") == kept(tmp_path / "here")
    assert calls <= server.calls <= calls + 8


def test_limits_hold_over_all_workers(server, executor, tmp_path):
    chat = f"openai:small@{server.url}"
    found = judged(executor, chat=chat, folder=tmp_path, max_calls=23)
    assert server.calls == 23
    assert found.stopped == "the limit of 23 requests is reached"
    more = judged(executor, chat=chat, folder=tmp_path)
    assert outcome(more)[2:6] == outcome(judged(chat=chat))[2:6]
    assert not more.stopped


def test_a_cost_is_limited_over_all_workers(server, executor):
    found = judged(executor, chat=f"openai:small@{server.url}", max_cost=0.01, prices={"*": (1.0, 1.0)})
    assert found.stopped == "the limit of 0.01 is reached"
    assert 0 < (server.prompt_tokens + server.completion_tokens) / 1e6 <= 0.01


@pytest.mark.parametrize("fault", ["rate_limit", "drop", "stall", "truncated"])
def test_a_server_that_fails_once_is_asked_again(fault, server, executor):
    chat = f"openai:small@{server.url}"
    plain = judged(samples=SAMPLES[:6], chat=chat)
    server.forget()
    server.misbehave(fault, after=1.0 if fault == "stall" else 0.05)
    found = judged(executor, SAMPLES[:6], chat=chat, timeout=0.5 if fault == "stall" else 20)
    assert server.did[fault] == 1
    assert (found.verdicts, outcome(found)[3]) == (plain.verdicts, outcome(plain)[3])
    assert sum(row.retries + row.unread for row in found.ledger) == 1


def test_an_attempt_takes_as_long_as_it_may_and_says_so(server, executor):
    judged(executor, SAMPLES[:1], chat=f"openai:small@{server.url}", folder=None)
    server.misbehave("stall", times=400, after=1.0)
    with pytest.raises(BackendFailed, match=r"no reply within 0\.2 s \(2 attempts\)"):
        judged(executor, SAMPLES[:2], chat=f"openai:small@{server.url}", timeout=0.2, retries=1)


def test_what_is_final_stops_all_workers_in_the_servers_words(server, executor, tmp_path):
    said = []
    for one in (None, executor):
        server.misbehave("key_echo", times=200)
        with pytest.raises(BackendFailed) as caught:
            judged(one, chat=f"openai:small@{server.url}", folder=tmp_path / str(one is None), concurrency=4)
        said.append((str(caught.value), caught.value.final))
        server.faults.clear()
        time.sleep(0.2)  # calls that were under way end by themselves
    assert said[0] == said[1]
    assert said[0][1]


def test_a_failure_is_that_of_its_call(executor):
    texts = ["it is moody.", "it is broken.", "it is high."]
    samples = [Sample(f"s{i}", "q?", text, ("it is high",)) for i, text in enumerate(texts)]
    found = judged(executor, samples, ["faithfulness"], chat=Moody())
    assert outcome(found) == outcome(judged(samples=samples, measures=["faithfulness"], chat=Moody()))
    assert {name: one.unscored["claims answer"].why for name, one in found.verdicts.items() if one.unscored} == {
        "s0": "the call failed: not in the mood",
        "s1": "the call failed: KeyError: 'no such thing'",
    }


def test_calls_are_made_by_several_processes_and_none_of_them_here(workers):
    whole(workers)
    found = judged(workers.executor, chat=Located())
    assert len(found.identity["replied"]) == 2
    assert str(os.getpid()) not in found.identity["replied"]


def test_a_chat_that_takes_one_call_at_a_time_is_asked_one_at_a_time_by_each_worker(executor):
    samples = SAMPLES[:10]
    assert (
        outcome(judged(executor, samples, chat=Single()))[2:6] == outcome(judged(samples=samples, chat=Single()))[2:6]
    )


def test_a_chat_that_a_worker_has_otherwise_is_refused(pools):
    assert judged(pools["threads"], SAMPLES[:1], chat=Fickle()).scores.n["faithfulness"] == 1
    with pytest.raises(BackendFailed, match=rf"another literal: its model is 'of \d+', not 'of {os.getpid()}'"):
        judged(pools["processes"], SAMPLES[:1], chat=Fickle())


def test_workers_that_would_ask_another_endpoint_or_have_no_file_say_so(pools, tmp_path, monkeypatch):
    assert judged(pools["processes"], SAMPLES[:1]).scores.n["faithfulness"] == 1  # its environment is that of now
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    with pytest.raises(BackendFailed, match=r"another openai:small@.*: its endpoint is 'https://api") as caught:
        judged(pools["processes"], SAMPLES[:1], chat="openai:small")
    assert "openai:MODEL@URL" in str(caught.value.hint)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.gguf").write_bytes(b"GGUF")
    with pytest.raises(BackendFailed, match=r"a worker cannot open local:small\.gguf: .*there is no such file"):
        judged(pools["processes"], SAMPLES[:1], chat="local:small.gguf")


def test_a_key_that_is_here_and_not_on_the_workers_is_said_to_be_missing_there(pools, monkeypatch):
    assert judged(pools["processes"], SAMPLES[:1]).scores.n["faithfulness"] == 1  # its environment is that of now
    monkeypatch.setenv("ONLY_HERE", "key-of-mine")
    with pytest.raises(
        BackendFailed, match=r"a worker cannot open openai:small: .* there is none in ONLY_HERE"
    ) as caught:
        judged(pools["processes"], SAMPLES[:1], chat="openai:small", options={"key": "ONLY_HERE"})
    assert caught.value.final
    assert str(caught.value.hint).startswith("on every worker, before it starts: set ONLY_HERE, or give the address")
    assert "key-of-mine" not in str(caught.value)


def test_a_chat_that_no_process_can_be_sent_is_to_be_named(server, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-mine")
    tap = Wiretap()
    with pytest.raises(BadInput, match=r"the chat openai:small@.* cannot be sent to another process") as caught:
        judged(tap, SAMPLES[:1], chat=OpenAIChat("small", url=server.url))
    assert 'chat="openai:MODEL@URL"' in str(caught.value.hint)
    assert "key-of-mine" not in str(caught.value)
    assert tap.heard == []
    assert judged(tap, SAMPLES[:1], chat=f"openai:small@{server.url}").scores.n["faithfulness"] == 1


def test_a_chat_that_cannot_travel_is_refused_and_threads_take_it(pools):
    with pytest.raises(BadInput, match="cannot be sent to another process"):
        judged(pools["processes"], SAMPLES[:1], chat=Locked())
    assert judged(pools["threads"], SAMPLES[:1], chat=Locked()).scores.n["faithfulness"] == 1


def test_a_pool_that_loses_a_process_stops_and_what_was_said_is_kept(tmp_path):
    with (
        processes(1) as pool,
        pytest.raises(BackendFailed, match="the executor lost a process") as caught,
    ):
        judged(pool, chat=Deadly(), folder=tmp_path)
    assert "the same command goes on there" in str(caught.value.hint)


def test_chats_that_reply_in_turn_stay_here(pools, tmp_path):
    file, pool = tmp_path / "said.jsonl", pools["processes"]
    plain = judged(chat=ScriptedChat(literal_judge.answer))
    assert outcome(judged(pool, chat=ScriptedChat(literal_judge.answer))) == outcome(plain)
    assert judged(pool, chat=Recording(Literal(), file)).verdicts == plain.verdicts
    assert judged(pool, chat=f"replay:{file}").verdicts == plain.verdicts


def test_what_an_endpoint_does_not_take_is_told_once(server, executor):
    server.traits = {"no_temperature", "no_json_schema"}
    plain = judged(samples=SAMPLES[:8], chat=f"openai:small@{server.url}")
    found = judged(executor, SAMPLES[:8], chat=f"openai:small@{server.url}")
    assert sorted(found.notes) == sorted(plain.notes)
    assert len(plain.notes) > 1
    assert found.verdicts == plain.verdicts


def test_a_key_is_taken_from_the_workers_environment_and_does_not_travel(server, monkeypatch):
    monkeypatch.setenv("OTHER_KEY", "key-of-the-worker")
    with processes(1) as pool:
        pool.submit(os.getpid).result()  # it has the environment of now
        monkeypatch.delenv("OTHER_KEY")
        judged(pool, SAMPLES[:1], chat=f"openai:small@{server.url}", options={"key": "OTHER_KEY"})
    assert {one["authorization"] for one in server.headers} == {"Bearer key-of-the-worker"}
    monkeypatch.setenv("OTHER_KEY", "key-of-the-worker")
    opening = partial(open_chat, f"openai:small@{server.url}", {"key": "OTHER_KEY"})
    sent = pickle.dumps(remote_calls.Calls("openai:small", opening, opening().identity, 60.0))
    assert b"OTHER_KEY" in sent
    assert b"key-of-the-worker" not in sent


@pytest.mark.parametrize("variable", ["OPENAI_API_KEY", "OTHER_KEY"])
def test_no_key_is_in_what_is_sent_or_said_or_kept(variable, server, monkeypatch, caplog, capfd, tmp_path):
    key = "sk-nobody-is-to-see-this"
    monkeypatch.setenv(variable, key)
    caplog.set_level(logging.DEBUG)
    tap, options = Wiretap(), {} if variable == "OPENAI_API_KEY" else {"key": variable}
    chat = f"openai:small@{server.url}"
    found = judged(tap, SAMPLES[:3], chat=chat, options=options, folder=tmp_path)
    server.misbehave("key_echo", times=200)
    with pytest.raises(BackendFailed, match=r"\[redacted\]") as caught:
        judged(tap, SAMPLES[:6], chat=chat, options=options, folder=tmp_path)
    assert {one["authorization"] for one in server.headers} == {f"Bearer {key}"}  # it was there all the time
    told = [repr(outcome(found)), str(caught.value), repr(caught.value), caplog.text, *capfd.readouterr()]
    files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert len(tap.heard) > 2
    assert files
    assert not [one for one in [*tap.heard, *files, *(text.encode() for text in told)] if b"nobody-is-to-see" in one]


def test_no_key_of_a_worker_is_in_what_it_says(server, monkeypatch, capfd):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-nobody-is-to-see-this")
    with processes(1) as pool:
        pool.submit(os.getpid).result()  # it has the environment of now
        monkeypatch.delenv("OPENAI_API_KEY")
        server.misbehave("key_echo", times=200)
        with pytest.raises(BackendFailed, match=r"\[redacted\]") as caught:
            judged(pool, SAMPLES[:2], chat=f"openai:small@{server.url}")
    assert server.headers[0]["authorization"] == "Bearer sk-nobody-is-to-see-this"
    assert not [
        one for one in [str(caught.value), repr(caught.value), *capfd.readouterr()] if "nobody-is-to-see" in one
    ]


def test_a_chat_is_closed_by_whoever_opened_it(pools):
    chat = Literal()
    judged(pools["threads"], SAMPLES[:2], chat=chat)
    assert not chat.closed
    calls = remote_calls.Calls("literal", lambda: chat, chat.identity, 60.0)
    assert calls([]).replies == []
    asyncio.run(calls.close())
    assert chat.closed


def test_a_worker_closes_a_chat_that_nobody_asks_any_more_and_opens_it_again(monkeypatch):
    monkeypatch.setattr(event_loops, "IDLE_TIMEOUT_S", 0.1)
    opened = []

    def opening():
        opened.append(Literal())
        return opened[-1]

    calls = remote_calls.Calls("literal", opening, {"chat": "literal"}, 60.0)
    for turn in (1, 2):
        calls([])
        calls([])
        assert len(opened) == turn
        until = time.monotonic() + 20
        while not opened[-1].closed and time.monotonic() < until:
            time.sleep(0.01)
        assert opened[-1].closed


def test_it_works_inside_a_running_loop_and_two_at_a_time(workers, server):
    chat = f"openai:small@{server.url}"

    async def both():
        one = ragauge.judge_async(SAMPLES[:8], MEASURES, chat=chat, embedder="words", executor=workers.executor)
        other = ragauge.judge_async(SAMPLES[8:16], MEASURES, chat=chat, embedder="words", executor=workers.executor)
        return await asyncio.gather(one, other)

    found = asyncio.run(both())
    plain = [judged(samples=SAMPLES[:8], chat=chat), judged(samples=SAMPLES[8:16], chat=chat)]
    assert [outcome(one) for one in found] == [outcome(one) for one in plain]


def test_calibrating_takes_an_executor_too(pools):
    samples = [Sample(f"s{i}", "q?", f"it is {word}.", ("it is high",), labels={"faithfulness": float(word == "high")})
               for i, word in enumerate(["high", "low"] * 10)]  # fmt: skip
    plain = ragauge.calibrate(samples, chat=Literal(), measure="faithfulness")
    found = ragauge.calibrate(samples, chat=Literal(), measure="faithfulness", executor=pools["processes"])
    assert found.raters == plain.raters
    assert found.corrected == plain.corrected


def written(folder):
    rows = [{"id": one.id, "question": one.question, "answer": one.answer, "contexts": list(one.contexts),
             "reference": one.reference} for one in SAMPLES]  # fmt: skip
    (folder / "answers.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_the_command_line_has_a_cluster(workers, tmp_path):
    written(tmp_path)
    environment = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1"}
    words = [str(RAGAUGE), "judge", "answers.jsonl"]
    plain = forked([*words, "-o", "out"], tmp_path, environment)
    verdicts, scores = ((tmp_path / "out" / name).read_bytes() for name in ("verdicts.jsonl", "scores.csv"))
    found = forked([*words, "-o", "out", "--cluster", workers.address], tmp_path, environment)
    assert (found.returncode, found.stdout, found.stderr) == (0, plain.stdout, plain.stderr)
    assert (tmp_path / "out" / "verdicts.jsonl").read_bytes() == verdicts
    assert (tmp_path / "out" / "scores.csv").read_bytes() == scores
    nowhere = forked([*words, "--cluster", "nowhere"], tmp_path, environment)
    assert (nowhere.returncode, nowhere.stderr.splitlines()[0]) == (2, "error: `nowhere` is no address of a cluster")


def test_ctrl_c_keeps_what_was_said(workers, server, tmp_path):
    written(tmp_path)
    server.latency = 0.1
    chat = f"openai:small@{server.url}"
    command = [str(RAGAUGE), "judge", "answers.jsonl", "-c", chat, "-m", "faithfulness", "-o", "halted"]
    process = subprocess.Popen(
        [*command, "--cluster", workers.address, "--workers", "4"],
        cwd=tmp_path, env={**os.environ, "OPENAI_API_KEY": "x"}, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    while len(server.asked) < 20 and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, talk = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "every reply is kept in halted, and the same command goes on from there" in talk
    assert "Traceback" not in talk
    calls, replies = kept(tmp_path / "halted")
    assert calls == len(replies) >= 12
    time.sleep(0.3)  # what was in flight is counted by the server
    assert len(server.asked) <= len(replies) + 2 * 4
    server.forget()
    found = judged(
        samples=str(tmp_path / "answers.jsonl"), measures=["faithfulness"], chat=chat, folder=tmp_path / "halted"
    )
    assert server.calls + len(replies) == sum(row.calls for row in found.ledger)
    assert np.isfinite(found.scores.values["faithfulness"]).all()


def test_max_calls_counts_probes_and_retries_of_workers(chat_server, workers):
    chat_server.traits = {"no_response_format"}
    chat_server.misbehave("error", times=3)
    samples = [Sample(f"s{i}", "q", f"it is high {i}.", (f"it is high {i}",)) for i in range(12)]
    chat, how = f"openai:m@{chat_server.url}", {"max_calls": 9, "concurrency": 8, "executor": workers.executor}
    found = ragauge.judge(samples, ["faithfulness"], chat=chat, **how)
    assert chat_server.calls == 9
    assert found.stopped == "the limit of 9 requests is reached"
