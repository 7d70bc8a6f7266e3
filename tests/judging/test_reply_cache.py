"""Reply cache: keys depend on everything that affects a reply, one process holds it, and replies survive kill -9."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from ragauge.core.errors import BadInput
from ragauge.core.hashes import content_key
from ragauge.core.protocols import Reply
from ragauge.judging.reply_cache import REPLIES_FILE, CachedReply, ReplyCache, TotalUsage

CACHED_REPLY = CachedReply(Reply("yes", 10, 1, 4, "stop", "m-1", {"yes": 0.9, "no": 0.1}, "tokens"), 0.25, 3)


def test_reply_cache_round_trip(tmp_path):
    replies = ReplyCache(tmp_path)
    replies.save("key", "useful", "s1", CACHED_REPLY)
    replies.close()
    assert ReplyCache(tmp_path).find("key") == CACHED_REPLY


def test_reply_cache_missing_key_returns_none(tmp_path):
    assert ReplyCache(tmp_path).find("key") is None


def test_reply_cache_without_folder_writes_no_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    replies = ReplyCache()
    replies.save("key", "useful", "s1", CACHED_REPLY)
    assert replies.find("key") == CACHED_REPLY
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("exists", [False, True])
def test_reply_cache_closed_unused_leaves_nothing(tmp_path, exists):
    folder = tmp_path / "judged"
    if exists:
        folder.mkdir()
    ReplyCache(folder).close()
    assert list(tmp_path.rglob("*")) == [folder] * exists


def test_reply_cache_closed_unused_keeps_existing_file(tmp_path):
    file = tmp_path / REPLIES_FILE
    with contextlib.closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE other (text)")
    ReplyCache(tmp_path).close()
    assert file.exists()


def test_reply_cache_total_usage_spans_sessions(tmp_path):
    replies = ReplyCache(tmp_path)
    replies.save("key", "useful", "s1", CACHED_REPLY)
    replies.save("key", "useful", "s1", CACHED_REPLY)
    replies.save_failure("useful", "no reply", Reply("", 7))
    replies.close()
    assert ReplyCache(tmp_path).total_usage() == TotalUsage(3, 27, 2, 8)
    assert ReplyCache().total_usage() == TotalUsage()


def test_content_key_depends_on_every_part_but_not_key_order():
    base = ({"model": "m", "url": "u"}, [{"role": "user", "content": "x"}], {"enum": ["a"]}, 0, 0)
    others = [
        ({"model": "n", "url": "u"}, *base[1:]),
        ({"model": "m", "url": "v"}, *base[1:]),
        (base[0], [{"role": "user", "content": "y"}], *base[2:]),
        (*base[:2], {"enum": ["b"]}, 0, 0),
        (*base[:3], 1, 0),
        (*base[:3], 0, 1),
    ]
    assert len({content_key(*one) for one in (base, *others)}) == 7
    assert content_key({"url": "u", "model": "m"}, *base[1:]) == content_key(*base)


def test_reply_cache_vectors_round_trip(tmp_path):
    replies = ReplyCache(tmp_path)
    replies.save_vectors({"a": np.array([0.25, -1], np.float32)})
    assert list(replies.find_vectors(["a", "b"])) == ["a"]
    assert replies.find_vectors(["a"])["a"].tolist() == [0.25, -1.0]


def test_reply_cache_replaces_lone_surrogate(tmp_path):
    replies = ReplyCache(tmp_path)
    replies.save(content_key("\ud83d"), "useful", "s1", CachedReply(Reply("bad \ud83d end"), 0.0, 1))
    found = replies.find(content_key("\ud83d"))
    assert found is not None
    assert found.reply.text == "bad ? end"


@pytest.mark.slow
def test_reply_cache_second_process_raises(tmp_path):
    first = ReplyCache(tmp_path)
    first.save("key", "useful", "s1", CACHED_REPLY)
    code = (
        f"from pathlib import Path; from ragauge.judging.reply_cache import ReplyCache as Replies; "
        f"Replies(Path({str(tmp_path)!r}))"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "another process is working in this folder" in other.stderr
    first.close()
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_reply_cache_invalid_database_raises(tmp_path):
    (tmp_path / REPLIES_FILE).write_bytes(b"not a database at all, but long enough to be looked at" * 20)
    with pytest.raises(BadInput, match="holds no replies"):
        ReplyCache(tmp_path)


def test_reply_cache_unwritable_folder_raises(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="cannot be written"):
        ReplyCache(tmp_path / "file" / "folder")


def test_reply_cache_keeps_replies_after_kill_9(tmp_path):
    code = textwrap.dedent(f"""
        import sys
        from pathlib import Path
        from ragauge.judging.reply_cache import CachedReply as Kept, ReplyCache as Replies
        from ragauge.core.protocols import Reply
        replies = Replies(Path({str(tmp_path)!r}))
        for i in range(1_000_000):
            replies.save(str(i), "useful", "s", Kept(Reply(f"reply {{i}}"), 0.0, 1))
            sys.stdout.write(f"{{i}}\\n")
            sys.stdout.flush()
    """)
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for _ in range(50):
        last = int(process.stdout.readline())
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    replies = ReplyCache(tmp_path)
    for i in range(last + 1):
        found = replies.find(str(i))
        assert found is not None
        assert found.reply.text == f"reply {i}"
