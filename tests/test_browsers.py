"""Without a browser the tests of the report are skipped on a developer's machine and fail in CI."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from browsers import find_browser, give_up

SCRIPT = Path(__file__).parents[1] / ".ci" / "browser"


def test_the_named_browser_comes_first_then_an_installed_one_then_playwrights_own(tmp_path):
    bundled = tmp_path / "chrome"
    installed = {"mine": "/opt/mine", "google-chrome": "/usr/bin/google-chrome"}
    assert find_browser(str(bundled), {"RAINDROP_BROWSER": "mine"}, installed.get) == "/opt/mine"
    assert find_browser(str(bundled), {"RAINDROP_BROWSER": "absent"}, installed.get) == "/usr/bin/google-chrome"
    assert find_browser(str(bundled), {}, installed.get) == "/usr/bin/google-chrome"
    assert find_browser(str(bundled), {}, {}.get) is None
    bundled.touch()
    assert find_browser(str(bundled), {}, {}.get) == str(bundled)
    assert find_browser(None, {}, {}.get) is None


@pytest.mark.parametrize("environment", [{}, {"CI": ""}, {"CI": "false"}])
def test_without_a_browser_a_test_is_skipped_outside_ci(environment):
    with pytest.raises(pytest.skip.Exception, match="no browser"):
        give_up("no browser", environment)


def test_without_a_browser_a_test_fails_in_ci_and_points_to_the_reason():
    with pytest.raises(pytest.fail.Exception, match=r"no browser\. CI=true, .*\.ci/browser printed why"):
        give_up("no browser", {"CI": "true"})


@pytest.mark.parametrize(("ci", "consequence"), [("", "will be skipped"), ("true", "will fail, because CI=true")])
def test_the_script_says_why_no_browser_could_be_installed(tmp_path, ci, consequence):
    for name in ("bash", "tail", "timeout"):  # and neither a browser nor apt-get
        (tmp_path / name).symlink_to(shutil.which(name))
    for name, lines in {"id": "echo 1000", "playwright": "echo no route to host; exit 3"}.items():
        (tmp_path / name).write_text(f"#!{tmp_path}/bash\n{lines}\n")
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(
        [str(tmp_path / "bash"), str(SCRIPT), str(tmp_path)],
        env={"PATH": str(tmp_path), "CI": ci},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0
    assert consequence in done.stderr
    assert "apt-get was not tried: it needs root" in done.stderr
    assert "ended with code 3:\nno route to host" in done.stderr
