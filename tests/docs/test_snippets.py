"""Everything that the documentation shows is run: Python sessions and console sessions."""

import contextlib
import doctest
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kanab as kb
from kanab.cli.main import main
from kanab.collector.protocol.nonces import is_genuine
from kanab.datasets import eighteen, eighteen_rows

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SHOWN_ONLY = ("make ", "git ", "pip ", "python3 -m venv")  # run by CI itself, not here
SLOW = {"clusters.md", "notebooks.md", "windows.md"}


def blocks(page: Path, language: str) -> list[str]:
    return [body for kind, body in BLOCK.findall(page.read_text(encoding="utf-8")) if kind == language]


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.slow if page.name in SLOW else ())
        for page in PAGES
        if blocks(page, "python")
    ],
    ids=name,
)
def test_python_sessions_print_what_is_shown(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    session = "\n".join(blocks(page, "python"))
    assert ">>>" in session, "show a session with its output"
    test = doctest.DocTestParser().get_doctest(session, {}, name(page), str(page), 0)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    problems: list[str] = []
    runner.run(test, out=problems.append)
    assert runner.failures == 0, "".join(problems)


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "console")], ids=name)
def test_console_sessions_print_what_is_shown(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for block in blocks(page, "console"):
        for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE):
            if command.startswith(SHOWN_ONLY):
                continue
            run(shlex.split(command), monkeypatch)
            out, err = capfd.readouterr()
            pattern = ".*".join(re.escape(part) for part in shown.strip().split("..."))
            assert re.fullmatch(pattern, (out + err).strip(), re.DOTALL), out + err


def run(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a command; `kanab` in this process, because to start and import it takes a second each time."""
    if words[0] == "python":  # a program of the repository, as somebody runs it who stands there
        subprocess.run([sys.executable, *words[1:]], check=False, cwd=ROOT)
        return
    if words[0] != "kanab":
        subprocess.run(words, check=False)
        return
    monkeypatch.setattr(sys, "argv", words)
    with contextlib.suppress(SystemExit):
        main()


def test_every_link_between_pages_leads_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{name(page)} links to {target}"


EXAMPLE = Path(__file__).parents[2] / "examples" / "paper.py"
README = Path(__file__).parents[2] / "README.md"


def f_of_rows() -> float:
    """Return the paper's partial F, as the example computes it from rows."""
    return float(runpy.run_path(str(EXAMPLE))["from_rows"]()["F"])


def picture() -> str:
    rows = eighteen_rows()
    people = list(zip(rows["treatment"], rows["tier"], rows["minutes"], strict=True))
    left = ["user  treatment  tier      minutes", "────  ─────────  ────  ───────────"]
    for user, (treatment, tier, minutes) in enumerate(people, 1):
        left.append(f"{user:>4}  {treatment:<9}  {tier:>4}  {minutes:.9f}")
    tally = eighteen()
    right = [line for table in tally.tables() for line in (*str(table).splitlines(), "")]
    f = kb.stats.pooled_f(tally).F
    right += [
        "and it gives the same answer:",
        f"  F from eighteen rows  {f_of_rows():.13f}",
        f"  F from six classes    {f:.13f}",
    ]
    head = "eighteen people took part", "this is everything we kept"
    lines = [f"{head[0]:<36}      {head[1]}", ""]
    for i in range(len(left)):
        arrow = "  ──►  " if i == 4 else "       "
        lines.append(f"{left[i]:<35}{arrow}{right[i] if i < len(right) else ''}".rstrip())
    assert len(right) <= len(left)
    return "\n".join(lines)


def test_the_picture_in_the_readme_is_the_computed_one() -> None:
    assert picture() in README.read_text(encoding="utf-8")


def test_the_two_answers_in_the_picture_are_equal() -> None:
    assert np.isclose(f_of_rows(), kb.stats.pooled_f(eighteen()).F or 0, rtol=1e-13, atol=0)


PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "vouchers.md"
KEY = "07" * 32


@pytest.fixture
def views(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, Any]]:
    """What each block of Python defines, by the framework that its first line names."""
    monkeypatch.setenv("KANAB_VOUCHER_KEY", KEY)
    views = {}
    for block in re.findall(r"```py\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        names: dict[str, Any] = {"__name__": "shop"}
        exec(compile(block, str(PAGE), "exec"), names)
        views[re.search(r"# (\w+)", block)[1]] = names  # type: ignore[index]
    return views


def check(vouchers: list[str], caching: str | None) -> None:
    assert len({*vouchers}) == 8
    assert all(is_genuine(bytes.fromhex(voucher), [bytes.fromhex(KEY)]) for voucher in vouchers)
    assert caching == "no-store"


def test_flask_mints_vouchers(views: dict[str, dict[str, Any]]) -> None:
    answer = views["Flask"]["app"].test_client().get("/vouchers")
    check(answer.json, answer.headers["Cache-Control"])


def test_starlette_mints_vouchers(views: dict[str, dict[str, Any]]) -> None:
    from starlette.applications import Starlette  # noqa: PLC0415
    from starlette.routing import Route  # noqa: PLC0415
    from starlette.testclient import TestClient  # noqa: PLC0415

    app = Starlette(routes=[Route("/vouchers", views["Starlette"]["vouchers"])])
    answer = TestClient(app).get("/vouchers")
    check(answer.json(), answer.headers["cache-control"])


def test_django_mints_vouchers(views: dict[str, dict[str, Any]]) -> None:
    import json  # noqa: PLC0415

    from django.conf import settings  # noqa: PLC0415
    from django.test import RequestFactory  # noqa: PLC0415

    if not settings.configured:
        settings.configure()
    answer = views["Django"]["vouchers"](RequestFactory().get("/vouchers"))
    check(json.loads(answer.content), answer["Cache-Control"])
