"""kanab reweigh: release files of batches → shares; text, JSON and a page."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from click.testing import CliRunner

import kanab as kb
from kanab.cli.main import cli
from kanab.portfolio import propose_shares


def test_files_give_what_python_gives_and_flags_are_the_keywords(tmp_path: Path) -> None:
    files = []
    for week in (1, 2):
        rng = np.random.default_rng(week)
        rows = {"button": rng.choice(["A", "B"], 900), "bought": rng.random(900) < 0.2, "clicks": rng.poisson(3, 900)}
        counted = kb.count(rows, arm="button", metrics=["bought", "clicks"], bounds={"clicks": (0, 20)})
        files.append(str(tmp_path / f"week{week}.json"))
        kb.write_release(kb.release(counted), files[-1])

    def done(*words: str) -> str:
        result = CliRunner().invoke(cli, ["reweigh", *files, *words], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.output

    releases = [kb.read_release(file) for file in files]
    assert done("--metric", "bought") == f"{propose_shares(releases, metric='bought')}\n"
    page = tmp_path / "shares.html"
    words = (
        "--experiment",
        "button",
        "--metric",
        "clicks",
        "--control",
        "B",
        "--better",
        "lower",
        "--least-share",
        "0.2",
    )
    data = json.loads(done(*words, "--confidence", "0.9", "--html", str(page), "--json"))
    assert (data["control"], data["better"], data["least_share"], data["confidence"]) == ("B", "lower", 0.2, 0.9)
    assert "<svg" in page.read_text(encoding="utf-8")
    assert done("--metric", "bought", "--html", str(page)).endswith(f"Report: {page}\n")
