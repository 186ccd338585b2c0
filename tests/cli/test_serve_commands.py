"""The commands `raindrop serve` and `raindrop token`, as far as they need no model."""

from __future__ import annotations

import re

from command_line import Ask

from raindrop.serve.tokens import Tokens


def test_a_run_that_is_none_is_one_sentence(ask: Ask, tmp_path):
    code, _, said = ask("serve", tmp_path, "--port", 0)
    assert code == 1
    assert "there is no model.json" in said


def test_two_runs_of_one_kind_are_refused(ask: Ask, tmp_path):
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
        (folder / "model.json").write_text('{"state": {}}')
    code, _, said = ask("serve", *folders, "--port", 0)
    assert code == 1
    assert "both predict samples" in said


def test_an_open_address_without_tokens_is_refused(ask: Ask, tmp_path):
    code, _, said = ask("serve", tmp_path, "--host", "0.0.0.0")
    assert code == 1
    assert "--tokens" in said


def test_the_command_token_shows_a_token_once(ask: Ask, tmp_path):
    code, shown, _ = ask("token", tmp_path / "tokens.json", "--name", "ward", "--scopes", "predict", "metrics")
    assert code == 0
    (secret,) = re.findall(r"^rd_\S+$", shown, re.M)
    assert Tokens.read(tmp_path / "tokens.json").scopes(secret.encode()) == ("predict", "metrics")
    code, _, said = ask("token", tmp_path / "tokens.json", "--name", "other", "--scopes", "predicts")
    assert (code, "did you mean 'predict'" in said) == (1, True)
    assert ask("token", tmp_path / "tokens.json", "--name", "ward", "--remove")[0] == 0
    assert Tokens.read(tmp_path / "tokens.json").tokens == []
