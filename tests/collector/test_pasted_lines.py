"""What the pages tell people to paste into a shell is pasted here, against a real collector."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.closing import Keep
from tests.collector.collector_process import Place, Server
from tests.programs import need_program

ROOT = Path(__file__).parents[2]
SHELL = re.compile(r"^```sh\n(.*?)^```$", re.DOTALL | re.MULTILINE)
INDENTED = re.compile(r"^    NONCE=.*\n(?:    .*\n)+", re.MULTILINE)


def pasted(place: Place, server: Server, text: str) -> subprocess.CompletedProcess[str]:
    """Run lines in a shell that finds this environment's kanab, on the collector under test."""
    text = text.replace("localhost:8000", f"127.0.0.1:{server.port}").replace("./kanab-data", str(place.data))
    tools = f"{Path(sys.executable).parent}:{place.env['PATH']}"
    return subprocess.run(
        ["bash", "-euc", text],
        cwd=place.root,
        env=place.env | {"PATH": tools},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def collecting(place: Place, closing: Keep) -> Server:
    need_program("curl", package="curl")
    assert place.run("init", place.root / "kanab.toml").code == 0
    return closing(Server(place, "--plan", place.root / "kanab.toml", "--data", place.data)).start()


@pytest.mark.parametrize("page", ["README.md", "docs/how-to/collector.md"])
def test_the_lines_with_curl_are_counted_as_pasted(place: Place, collecting: Server, page: str) -> None:
    (lines,) = INDENTED.findall((ROOT / page).read_text(encoding="utf-8"))
    post = lines.partition("/v1/t")[0] + "/v1/t"
    done = pasted(place, collecting, post.replace("curl ", "curl -si "))
    assert "204 No Content" in done.stdout, done.stdout + done.stderr
    assert "kanab-answer: counted" in done.stdout


def test_the_lines_of_the_tutorial_work_one_after_the_other(place: Place, collecting: Server) -> None:
    blocks = SHELL.findall((ROOT / "docs/tutorial/3-run-a-collector.md").read_text(encoding="utf-8"))
    serve, post, watch, analyze = blocks
    assert serve == "kanab serve --plan kanab.toml --data ./kanab-data\n"
    counted = pasted(place, collecting, post.replace("curl -i ", "curl -si "))
    assert "kanab-answer: counted" in counted.stdout, counted.stdout + counted.stderr
    watched = pasted(place, collecting, watch)
    assert watched.returncode == 0, watched.stdout + watched.stderr
    early = pasted(place, collecting, analyze)
    assert early.returncode == 2  # nothing is sealed yet: an error that says so, no traceback
    assert "Traceback" not in early.stderr
