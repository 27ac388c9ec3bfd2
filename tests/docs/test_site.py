"""The documentation site: every page is in its navigation, every link and anchor leads somewhere."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
NAV = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").split("\nnav:\n")[1]


@pytest.fixture(scope="module")
def build() -> ModuleType:
    spec = importlib.util.spec_from_file_location("site_build", ROOT / "docs/site/build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_page_is_in_the_navigation(build: ModuleType) -> None:
    named = re.findall(r"[\w./-]+\.md", NAV)
    pages = {name for name in build.pages() if not name.startswith("source/")}
    assert set(named) == pages
    assert len(named) == len(set(named))


def test_the_first_page_is_the_readme_with_links_as_the_site_has_its_files(build: ModuleType) -> None:
    index = build.pages()["index.md"]
    assert "](how-to/README.md)" in index
    assert "](docs/" not in index
    assert "](project/architecture.md)" in index


def test_files_that_pages_link_to_are_shown(build: ModuleType) -> None:
    page = build.pages()["source/deploy/nginx.conf.md"]
    assert page.startswith("---\nsearch: { exclude: true }\n---\n# deploy/nginx.conf\n\n```nginx\n")


@pytest.mark.parametrize(
    ("word", "page"),
    [("SRM", "fair"), ("MDE", "power"), ("peeking", "looking-early"), ("CACE", "received"), ("CUPED", "numbers"),
     ("guardrail", "deciding"), ("HTE", "segments"), ("retention", "windows")],
)  # fmt: skip
def test_a_search_for_the_fields_word_finds_the_page_about_it(build: ModuleType, word: str, page: str) -> None:
    separator = re.search(r"separator: '([^']+)'", (ROOT / "mkdocs.yml").read_text("utf-8"))
    assert separator is not None
    words = re.split(separator[1], build.pages()[f"how-to/{page}.md"].casefold())
    assert word.casefold() in words


def test_every_public_name_has_a_signature_on_the_site(build: ModuleType) -> None:
    import kanab  # noqa: PLC0415 - beside the pages

    page = build.pages()["api/kanab.md"]
    assert len(re.findall("^::: kanab", page, re.MULTILINE)) == len(kanab.__all__)


@pytest.mark.slow
def test_the_strict_build_names_the_one_link_that_is_broken_and_no_other(
    build: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "GATHERED", tmp_path / "docs")
    build.gather()
    with (tmp_path / "docs" / "glossary.md").open("a") as page:
        page.write("\n[nowhere](how-to/plan.md#no-such-heading)\n")
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for relative, path in (
        ("build/docs", tmp_path / "docs"), ("build/site", tmp_path / "site"), ("[src]", f"[{ROOT / 'src'}]"),
        ("docs/site/sessions.py", ROOT / "docs/site/sessions.py"),
    ):  # fmt: skip
        assert relative in settings
        settings = settings.replace(relative, str(path))
    (tmp_path / "mkdocs.yml").write_text(settings, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict"],
        cwd=tmp_path,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    said = [line for line in done.stderr.splitlines() if "WARNING" in line]
    assert done.returncode != 0
    assert len(said) == 1, done.stderr
    assert "no-such-heading" in said[0] or "glossary.md" in said[0]


def test_a_notebook_is_a_page_with_its_words_code_tables_and_pictures(build: ModuleType) -> None:
    page = build.pages()["notebooks/1-analyze.md"]
    assert page.startswith("# Analyze an experiment\n")
    assert "```python\nanswer.chart()\n```\n\n<div><svg" in page
    assert "metric           arm  effect" in page
    assert "](../notebooks/1-analyze.md)" in build.pages()["how-to/notebooks.md"]
