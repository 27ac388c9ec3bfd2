"""kanab notify, and who is told by plan and environment."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.unit.cli.conftest import program  # noqa: F401
from tests.unit.cli.program import Program
from tests.unit.notify.receivers import Receiver

SECRET = "SECRET-THAT-SIGNS-MESSAGES"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with closing(Receiver()) as opened:
        yield opened


@pytest.fixture
def plan(tmp_path: Path, receiver: Receiver) -> Path:
    path = tmp_path / "kanab.toml"
    path.write_text(
        "[metrics]\nspend = { bounds = [0, 500] }\n[experiments.checkout]\narms = { A = 1, B = 1 }\n"
        f'[notify.slack]\n[notify.json]\nto = "{receiver.url}/kanab"\n'
    )
    return path


def test_a_test_message_goes_to_everybody_and_says_who_took_it(
    program: Program,  # noqa: F811
    plan: Path,
    receiver: Receiver,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = tmp_path / "slack"
    file.write_text(f"{receiver.url}/services/TOKEN\n")
    monkeypatch.setenv("KANAB_NOTIFY_SLACK_FILE", str(file))
    monkeypatch.setenv("KANAB_NOTIFY_SECRET", SECRET)
    ended = program("notify", "--plan", str(plan), "--test")
    where = f"127.0.0.1:{receiver.port}"
    assert ended.code == 0
    assert ended.out == f"slack ({where}) took the test message.\njson ({where}) took the test message.\n"
    slack, plain = receiver.got
    assert slack.data["text"].startswith("Messages of this collector arrive here\nThis is a test.")
    assert plain.data["kind"] == "test"
    receiver.status = 404
    ended = program("notify", "--plan", str(plan), "--test")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.splitlines()[0] == (
        f"kanab: slack: {where} answers 404: there is no such webhook. Check the address; make a new one."
    )
    assert len(ended.err.splitlines()) == 2
    assert "TOKEN" not in ended.err


def test_secrets_that_are_missing_or_wrong_are_said_before_anything_is_made(
    program: Program,  # noqa: F811
    plan: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    commands = (
        ("notify", "--plan", str(plan), "--test"),
        ("seal", "--plan", str(plan), "--data", str(tmp_path / "data")),
    )
    for words in commands:
        ended = program(*words)
        assert ended.code == 2
        assert ended.err == (
            "kanab: the address for Slack is not said. "
            "Set KANAB_NOTIFY_SLACK, or KANAB_NOTIFY_SLACK_FILE to a file that holds it.\n"
        )
    monkeypatch.setenv("KANAB_NOTIFY_SLACK", "hooks.example/TOKEN")
    for words in commands:
        ended = program(*words)
        assert ended.err.startswith("kanab: the address for Slack must begin with https:// or http://")
        assert "TOKEN" not in ended.err
    monkeypatch.setenv("KANAB_NOTIFY_SLACK", "https://hooks.example/TOKEN")
    assert program(*commands[1]).err.startswith("kanab: the secret that signs messages is not said.")
    assert not (tmp_path / "data").exists()


def test_a_plan_that_tells_nobody_is_said_to(program: Program, tmp_path: Path) -> None:  # noqa: F811
    path = tmp_path / "kanab.toml"
    path.write_text("[metrics]\nspend = { bounds = [0, 500] }\n[experiments.checkout]\narms = { A = 1, B = 1 }\n")
    ended = program("notify", "--plan", str(path), "--test")
    assert (ended.code, ended.err.split(".")[0]) == (2, "kanab: the plan tells nobody")
