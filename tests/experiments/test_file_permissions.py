"""Systems of an experiment file send secrets only to the service they belong to, or with permission."""

from __future__ import annotations

import pytest

from command import command_in
from ragauge.core.errors import BadInput
from ragauge.experiments.experiment_file import Permissions, read_experiment
from servers import serving

SYSTEM_FILE = 'dataset = "synthetic:needles"\n[systems.x]\n'
REMOTE_EMBEDDER = "openai(model=m, url=https://host.example/v1)"
REMOTE_CASES = [
    ('kind = "http"\nurl = "https://host.example"\nbearer = "MY_TOKEN"', "sends the environment variable MY_TOKEN", ""),
    ('kind = "http(url=\\"http://127.0.0.1:1\\", bearer=MY_TOKEN)"', "sends the environment variable MY_TOKEN", ""),
    ('kind = "http"\nurl = "https://host.example"\nbearer = "MY_TOKEN"', "sends MY_TOKEN to host.example", "MY_TOKEN"),
    (f'kind = "dense"\nembedder = "{REMOTE_EMBEDDER}"', "sends OPENAI_API_KEY to host.example", ""),
    ('kind = "dense"\nembedder = {kind = "openai", url = "http://api.openai.com/v1"}', "to api.openai.com", ""),
    (f'kind = "hybrid"\nof = ["bm25", "dense(embedder={REMOTE_EMBEDDER})"]', "OPENAI_API_KEY to host.example", ""),
    ('kind = "pipeline"\nreranker = "llm(model=m, url=https://host.example)"', "OPENAI_API_KEY to host.example", ""),
    ('kind = "pgvector"\ndsn = "host=/tmp,host.example"', "the password of PostgreSQL to host.example", ""),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message", "variable"), REMOTE_CASES)
def test_read_experiment_secret_for_another_host_is_refused(tmp_path, monkeypatch, text, message, variable):
    monkeypatch.setenv("MY_TOKEN", "a-token-of-mine")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-a-key-of-mine-123")
    path = tmp_path / "x.toml"
    path.write_text(SYSTEM_FILE + text)
    allowed = (variable,) if variable else ()
    with pytest.raises(BadInput, match=f"the system `x` .*{message}") as caught:
        read_experiment(str(path), Permissions(variables=allowed))
    assert "--allow-" in str(caught.value.hint)
    hosts = ("host.example", "api.openai.com")
    assert read_experiment(str(path), Permissions(("MY_TOKEN",), hosts))["systems"]


@pytest.mark.parametrize(
    "text",
    [
        'kind = "dense"\nembedder = "openai(model=m, url=http://127.0.0.1:8000/v1)"',
        'kind = "dense"\nembedder = "openai(model=m, url=https://api.openai.com/v1)"',
        'kind = "dense"\nembedder = "openai(model=m, url=https://endpoint.example:8443/v2)"',
        'kind = "http"\nurl = "https://host.example/search"',
        'kind = "http"\nurl = "https://host.example"\nbearer = "UNSET_TOKEN"',
        'kind = "pgvector"\ndsn = "postgresql://localhost/docs"',
    ],
)
def test_read_experiment_usual_service_needs_no_permission(tmp_path, monkeypatch, text):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-a-key-of-mine-123")
    path = tmp_path / "x.toml"
    path.write_text(SYSTEM_FILE + text)
    if "endpoint.example" in text:
        monkeypatch.setenv("OPENAI_BASE_URL", "https://endpoint.example:8443/v1")
    assert read_experiment(str(path))["systems"]


def test_cli_run_file_sends_a_token_only_if_allowed(tmp_path):
    ragauge = command_in(tmp_path, "run", MY_TOKEN="a-token-of-mine")
    tokens = []
    with serving(lambda body, headers: (tokens.append(headers["Authorization"]), (200, ["d00001"]))[1]) as url:
        (tmp_path / "x.toml").write_text(f'{SYSTEM_FILE}kind = "http"\nurl = "{url}"\nbearer = "MY_TOKEN"')
        refused = ragauge("x.toml", "-o", "out", code=2)
        assert not tokens
        ragauge("synthetic:needles", "-s", f"x=http(url={url}, bearer=MY_TOKEN)", "--max-queries", "2", "-o", "a")
        ragauge("x.toml", "--max-queries", "2", "--allow-env", "MY_TOKEN", "-o", "b")
    assert set(tokens) == {"Bearer a-token-of-mine"}
    assert "add `--allow-env MY_TOKEN`" in refused.stderr
    assert "--allow-env has no effect" in ragauge("pydocs", "-s", "bm25", "--allow-env", "A", code=2).stderr
