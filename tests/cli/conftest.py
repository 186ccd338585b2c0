"""What tests of commands share."""

from __future__ import annotations

import pytest
from command_line import Ask

from raindrop.cli.app import main


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Ask:
    """A function from words to exit code, what was shown, and errors."""

    def given(*asked: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = 0
        try:
            main([str(word) for word in asked])
        except SystemExit as exit:
            code = int(exit.code or 0)
        return (code, *capsys.readouterr())

    return given
