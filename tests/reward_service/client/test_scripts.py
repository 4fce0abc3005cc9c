"""The two example scripts, run as a user runs them."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from reward_service.testing.fake_server import Fault

pytestmark = pytest.mark.timeout(120)
SCRIPTS = Path(__file__).parents[3] / "scripts"
BOTH = pytest.mark.parametrize("name", ["remote_client_example.py", "remote_client_zero_deps.py"])


@pytest.fixture
def image(tmp_path, picture):
    """A picture file."""
    picture.save(tmp_path / "cat.png")
    return str(tmp_path / "cat.png")


def run(name, *arguments):
    """Exit code, stdout, stderr."""
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / name), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={"COLUMNS": "200", "PATH": "/usr/bin"},
    )
    return done.returncode, done.stdout, done.stderr


@BOTH
def test_a_table_of_scores(server, image, name):
    """Exit 0; every picture with every reward; the file's bytes arrive unchanged with the prompt."""
    code, out, _ = run(name, "--url", server.url, "--prompt", "a cat", "--image", image, image, "--rewards", "clip,ocr")
    assert code == 0
    assert out.count("5.0000") == 4
    assert "cat.png" in out
    assert server.posts[0].texts == ["a cat", "a cat"]
    assert server.posts[0].media(0) == Path(image).read_bytes()


@BOTH
def test_failed_rewards_are_shown_and_exit_3(server, image, name):
    """The message of the server stands in the table."""
    server.scorer = lambda request: ({"clip": {"clip": 0.5}}, {"ocr": "ValueError('unreadable')"})
    code, out, _ = run(name, "--url", server.url, "--image", image, "--rewards", "clip", "ocr")
    assert code == 3
    assert "0.5000" in out
    assert "unreadable" in out


@BOTH
def test_a_null_score_is_a_failure(server, image, name):
    """Exit 3, and no number is shown for it."""
    server.scorer = lambda request: ({"clip": {"clip": None}}, {"clip": "ValueError('nan')"})
    code, out, _ = run(name, "--url", server.url, "--image", image, "--rewards", "clip")
    assert code == 3
    assert "0.0000" not in out


@BOTH
@pytest.mark.parametrize("url", ["localhost:8080", "http://", "nonsense", "http://[::1"])
def test_a_bad_url_is_one_line_and_exit_2(image, name, url):
    """No traceback."""
    code, _, err = run(name, "--url", url, "--image", image)
    assert code == 2
    assert err.startswith("error: ")
    assert err.count("\n") == 1


@BOTH
def test_an_unknown_reward_is_one_line_and_exit_1(server, image, name):
    """The server's own words."""
    code, _, err = run(name, "--url", server.url, "--image", image, "--rewards", "nope")
    assert code == 1
    assert "unknown reward 'nope'" in err
    assert err.count("\n") == 1


@BOTH
def test_a_missing_picture_is_exit_2(server, name):
    """Nothing is sent."""
    code, _, err = run(name, "--url", server.url, "--image", "gone.png", "--rewards", "clip")
    assert code == 2
    assert "gone.png" in err
    assert server.posts == []


@BOTH
def test_something_else_on_the_port_is_exit_1(server, image, name):
    """A server that is no reward service."""
    server.faults.append(Fault(status=200, body=b"<html>hello</html>", headers={"Content-Type": "text/html"}))
    code, _, err = run(name, "--url", server.url, "--image", image, "--rewards", "clip")
    assert code == 1
    assert "reward service" in err


def test_nobody_listening_is_exit_1(dead_url, image):
    """One line, with the reason."""
    code, _, err = run("remote_client_zero_deps.py", "--url", dead_url, "--image", image)
    assert code == 1
    assert "Connection refused" in err
    assert err.count("\n") == 1


def test_proxies_of_the_environment_are_used_only_on_request(server, image):
    """A dead proxy does not matter without --trust-env, and does with it."""
    rest = ["--image", image, "--rewards", "clip"]
    for trust, expected in ([], 0), (["--trust-env"], 1):
        done = subprocess.run(
            [sys.executable, SCRIPTS / "remote_client_zero_deps.py", "--url", server.url, *rest, *trust],
            env={"http_proxy": "http://127.0.0.1:9"},
            capture_output=True,
            timeout=60,
        )
        assert done.returncode == expected


def test_without_a_picture_the_example_paints_one(server):
    """Enough to see a service work."""
    code, out, _ = run("remote_client_example.py", "--url", server.url, "--rewards", "clip")
    assert code == 0
    assert "(painted)" in out


def test_the_other_script_needs_the_standard_library_only():
    """Every import is of the standard library."""
    tree = ast.parse((SCRIPTS / "remote_client_zero_deps.py").read_text())
    roots = {
        alias.name.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
    }
    roots |= {node.module.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert roots <= sys.stdlib_module_names
