"""The unit, the container and the proxies of deploy/: what an operator gets who installs them as they are."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.closing import Keep
from tests.collector.collector_process import Place, Server
from tests.collector.many_visitors import PLAN_TEXT
from tests.programs import need_program

DEPLOY = Path(__file__).parents[2] / "deploy"
MOST_EXPOSURE = 3.0
"""What systemd-analyze may give the unit at most: below it says OK."""


def instructions(text: str) -> list[tuple[str, str]]:
    """Return the instructions of a Containerfile, with continued lines joined."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in joined.splitlines() if line)]


@pytest.fixture
def container() -> list[tuple[str, str]]:
    return instructions((DEPLOY / "Containerfile").read_text())


def test_the_unit_is_fenced_in() -> None:
    program = need_program("systemd-analyze", package="systemd")
    command = [program, "security", "--offline=true", "--no-pager", str(DEPLOY / "kanab.service")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    level = re.search(r"Overall exposure level for kanab\.service: ([\d.]+)", done.stdout)
    if level is None:
        pytest.skip("this systemd-analyze does not judge files")
    assert float(level[1]) < MOST_EXPOSURE


def test_the_unit_keeps_its_key_where_a_seal_can_erase_it_and_its_token_out_of_the_environment() -> None:
    unit = (DEPLOY / "kanab.service").read_text()
    assert "StateDirectory=kanab\n" in unit
    assert "--data /var/lib/kanab/data " in unit
    assert "LoadCredential=kanab.token:/etc/kanab/token\n" in unit
    assert "KANAB_TOKEN_FILE=%d/kanab.token" in unit
    assert not re.search(r"KANAB_(TOKEN|KEY)=", unit)


def test_the_container_runs_as_a_number_and_writes_to_its_volumes_only(container: list[tuple[str, str]]) -> None:
    words = [word for word, _ in container]
    given = dict(container)
    user, group = given["USER"].split(":")
    assert min(int(user), int(group)) >= 1000
    assert words.index("USER") > max(place for place, word in enumerate(words) if word in ("RUN", "COPY"))
    assert json.loads(given["VOLUME"]) == ["/data", "/key"]
    assert "PYTHONDONTWRITEBYTECODE=1" in given["ENV"]
    assert (
        "--read-only --tmpfs /tmp --cap-drop all --security-opt no-new-privileges"
        in (DEPLOY / "Containerfile").read_text()
    )
    started = json.loads(given["ENTRYPOINT"])
    assert started[:2] == ["kanab", "serve"]
    places = {started[place + 1] for place, word in enumerate(started) if word in ("--data", "--key")}
    assert all(path.startswith(("/data/", "/key/")) for path in places)


def test_the_health_check_of_the_container_is_right_about_a_real_collector(
    container: list[tuple[str, str]], place: Place, closing: Keep
) -> None:
    command = json.loads(dict(container)["HEALTHCHECK"].partition("CMD ")[2])
    assert command[:2] == ["python", "-c"]
    server = closing(Server(place, "--plan", place.plan(PLAN_TEXT), "--data", place.data)).start()

    def checked() -> int:
        code = command[2].replace(":8000/", f":{server.port}/")
        return subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode

    assert checked() == 0
    server.kill()
    assert checked() != 0


def test_proxies_open_what_clients_need_and_nothing_else() -> None:
    caddy, nginx = ((DEPLOY / name).read_text() for name in ("Caddyfile", "nginx.conf"))
    opened = re.search(r"@open path (.+)", caddy)
    assert opened is not None
    assert set(opened[1].split()) == {"/v1/t", "/v1/config.json", "/v1/config/*", "/kanab.js"}
    places = re.findall(r"location (?:= |~ )?(\S+)", nginx)
    assert places == ["/v1/t", r"^/(v1/config|kanab\.js)", "/"]
    inside = ("/livez", "/readyz", "/healthz", "/metrics")
    assert not any(re.match(places[1], path) for path in inside)


def test_every_image_of_others_is_named_by_digest_or_by_a_variable_of_the_manual(
    container: list[tuple[str, str]],
) -> None:
    """A tag may move."""
    manual = (DEPLOY.parent / "docs" / "how-to" / "deployment.md").read_text(encoding="utf-8")
    assert [rest for word, rest in container if word == "FROM"] == ["${BASE}"]
    assert "--build-arg BASE=" in manual
    named = re.findall(r"\b(?:image|BASE): \"?([^\s\"]+)", (DEPLOY / "compose.yaml").read_text())
    others = [image for image in named if image != "localhost/kanab" and "@sha256:" not in image]
    assert len(named) == 4
    for image in others:
        variable = re.match(r"\$\{(KANAB_\w+_IMAGE):-", image)
        assert variable is not None, image
        assert variable[1] in manual
