"""Tokens: hashed on disk, compared without haste, and nothing passes without one."""

from __future__ import annotations

import json
import os

import pytest

from raindrop.errors import ConfigError
from raindrop.serve.gate import needed_scope
from raindrop.serve.server import Address, check_exposure
from raindrop.serve.tokens import SCOPES, Tokens, add_token, remove_token


def test_a_token_is_known_by_its_hash_alone(tmp_path):
    file = tmp_path / "tokens.json"
    secret = add_token(file, "ward 3", ["predict", "model"])
    assert secret not in file.read_text()
    assert len(secret) > 40
    tokens = Tokens.read(file)
    assert tokens.scopes(secret.encode()) == ("predict", "model")
    assert file.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("given", [None, b"", b"rd_", b"x" * 10_000, b"\xff"])
def test_anything_else_is_not_a_token(tmp_path, given):
    secret = add_token(tmp_path / "tokens.json", "a", ["predict"])
    tokens = Tokens.read(tmp_path / "tokens.json")
    assert tokens.scopes(given) is None
    assert tokens.scopes(secret[:-1].encode()) is None
    assert tokens.scopes(secret.encode() + b" ") is None
    assert Tokens([]).scopes(b"") is None


def test_every_stored_hash_is_compared_whichever_fits(tmp_path, monkeypatch):
    file = tmp_path / "tokens.json"
    secrets = [add_token(file, f"name {at}", ["predict"]) for at in range(3)]
    tokens, compared = Tokens.read(file), []
    monkeypatch.setattr("raindrop.serve.tokens.hmac.compare_digest", lambda a, b: compared.append(b) or a == b)
    for given in (secrets[0].encode(), secrets[2].encode(), b"wrong", None):
        compared.clear()
        tokens.scopes(given)
        assert len(compared) == 3


def test_a_removed_token_is_gone(tmp_path):
    file = tmp_path / "tokens.json"
    secret = add_token(file, "a", ["predict"])
    add_token(file, "b", ["admin"])
    remove_token(file, "a")
    assert Tokens.read(file).scopes(secret.encode()) is None
    assert [token.name for token in Tokens.read(file).tokens] == ["b"]


@pytest.mark.parametrize(
    ("options", "said"),
    [(("a", ["predicts"]), "did you mean 'predict'"), (("a", []), "at least one scope"), (("", ["predict"]), "1 to 64"),
     (("known", ["predict"]), "has a token 'known' already")],
)  # fmt: skip
def test_tokens_that_make_no_sense_are_refused(tmp_path, options, said):
    add_token(tmp_path / "tokens.json", "known", ["predict"])
    with pytest.raises(ConfigError, match=said):
        add_token(tmp_path / "tokens.json", *options)


def test_a_file_that_others_may_change_or_that_is_damaged_is_refused(tmp_path):
    file = tmp_path / "tokens.json"
    with pytest.raises(ConfigError, match="raindrop token"):
        Tokens.read(file)
    add_token(file, "a", ["predict"])
    os.chmod(file, 0o666)
    with pytest.raises(ConfigError, match="chmod 600"):
        Tokens.read(file)
    os.chmod(file, 0o600)
    content = json.loads(file.read_text())
    content["tokens"][0]["sha256"] = "short"
    file.write_text(json.dumps(content))
    with pytest.raises(ConfigError, match="damaged"):
        Tokens.read(file)
    file.write_text("[]")
    with pytest.raises(ConfigError, match="not a file of tokens"):
        Tokens.read(file)


def test_every_address_but_the_page_and_health_needs_a_scope():
    for path in ("/", "/page/page.js", "/openapi.json", "/health/live", "/health/ready", "/v2/health/ready"):
        assert not needed_scope("GET", path)
    needed = {
        ("POST", "/v1/predict"): "predict",
        ("POST", "/v1/readings"): "predict",
        ("POST", "/v1/graph"): "predict",
        ("POST", "/v2/models/a/infer"): "predict",
        ("GET", "/v2/models/a"): "model",
        ("POST", "/v1/stream/a"): "stream",
        ("GET", "/v1/model"): "model",
        ("POST", "/v1/model/reload"): "admin",
        ("GET", "/metrics"): "metrics",
        ("GET", "/anything/else"): "predict",
    }
    assert {key: needed_scope(*key) for key in needed} == needed
    assert set(needed.values()) == set(SCOPES)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org"])
def test_other_machines_are_let_in_only_with_tokens_or_by_so_many_words(host):
    address = Address(host=host)
    with pytest.raises(ConfigError, match="--without-tokens"):
        check_exposure(address, has_tokens=False, without_tokens=False)
    check_exposure(address, has_tokens=True, without_tokens=False)
    check_exposure(address, has_tokens=False, without_tokens=True)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_this_machine_needs_no_token(host):
    check_exposure(Address(host=host), has_tokens=False, without_tokens=False)


def test_tls_needs_both_files(tmp_path):
    (tmp_path / "cert.pem").write_text("x")
    with pytest.raises(ConfigError, match="both files"):
        Address(certificate=tmp_path / "cert.pem")
    with pytest.raises(ConfigError, match="no such file"):
        Address(certificate=tmp_path / "cert.pem", private_key=tmp_path / "none.pem")
