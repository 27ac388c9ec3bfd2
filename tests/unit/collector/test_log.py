"""What a collector's log says, and what it never says."""

import io
import json
import subprocess
import sys

import pytest

from kanab.collector.log import Level, Log


def test_a_sentence_is_one_line_whatever_a_plan_calls_its_experiments() -> None:
    stream = io.StringIO()
    Log(stream=stream)("kanab: people of check\nout\r\x85 {fake} arrive late.", Level.WARNING)
    time, level, words = stream.getvalue().split(" ", 2)
    assert (len(time), level, words) == (20, "warning", "kanab: people of check out {fake} arrive late.\n")
    stream = io.StringIO()
    Log("json", stream)('kanab: "x"\n.')
    assert json.loads(stream.getvalue()) | {"time": ""} == {"time": "", "level": "info", "message": '"x" .'}
    assert stream.getvalue().count("\n") == 1


def test_a_closed_stream_stops_nothing() -> None:
    stream = io.StringIO()
    stream.close()
    Log(stream=stream)("nobody reads this")


MISTAKES = """
import asyncio, logging, sys, threading
from kanab.collector.log import Log
from kanab.plan.file import parse_plan
Log(sys.argv[1]).take_over()

def fail(text):
    raise ValueError(f"cannot read {text}")

async def main():
    loop = asyncio.get_running_loop()
    for _ in range(3):
        loop.call_soon(fail, "body-4711")
    task = loop.create_task(asyncio.sleep(0, "body-4711"))
    await asyncio.sleep(0.01)

asyncio.run(main())
logging.getLogger("uvicorn.error").warning("Invalid request from %s", "192.0.2.7")
thread = threading.Thread(target=fail, args=["body-4711"])
thread.start(), thread.join()

class Careless:
    def __del__(self):
        raise KeyError("body-4711")

del (careless := [Careless()])[:]
parse_plan({"body-4711": 1})
"""


@pytest.mark.slow
def test_mistakes_and_libraries_are_told_by_kind_and_place_never_in_their_words() -> None:
    for form in ("text", "json"):
        done = subprocess.run([sys.executable, "-c", MISTAKES, form], capture_output=True, text=True, check=False)
        lines = done.stderr.splitlines()
        assert (done.returncode, done.stdout) == (1, "")
        assert "4711" not in done.stderr
        assert "192.0.2" not in done.stderr
        told = [json.loads(line)["message"] if form == "json" else line.split("kanab: ")[1] for line in lines]
        assert told[:-1] == [
            "asyncio reports a problem: ValueError.",  # three times, told once
            "uvicorn reports a problem.",
            "a mistake of this program: ValueError. Please report it.",
            "a mistake of this program: KeyError. Please report it.",
        ]
        assert told[-1].startswith("a mistake of this program: ")
        assert " at arguments.py:" in told[-1]
