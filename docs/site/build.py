"""Build the documentation site: `make docs`, or `python docs/site/build.py`.

Pages are written so that they can be read in the repository. Here they are gathered into build/docs, with README as the
first page, a page of signatures for every room, and a page for every file that something links to; mkdocs turns them
into build/site, and fails on a link or an anchor that leads nowhere. Nothing here depends on mkdocs' own hooks, so that
another generator can take its place.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import posixpath
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parents[2]
DOCS, GATHERED = ROOT / "docs", ROOT / "build" / "docs"
NOTEBOOKS = DOCS / "notebooks"
PROJECT = ("ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "CODE_OF_CONDUCT.md")
ROOMS = ("kanab", "kanab.stats", "kanab.planning", "kanab.scan", "kanab.portfolio", "kanab.privacy", "kanab.plan",
         "kanab.counting", "kanab.tally", "kanab.client", "kanab.errors")  # fmt: skip
LANGUAGES = {
    ".py": "python",
    ".conf": "nginx",
    ".toml": "toml",
    ".yaml": "yaml",
    ".js": "js",
    ".service": "ini",
    ".socket": "ini",
}
LINK = re.compile(r"(!?\[[^\]]*\]\()([^)#:\s]+)((?:#[^)]*)?\))")


def main() -> int:
    """Gather the pages and build the site; return the exit code of mkdocs."""
    gather()
    quiet = {"NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict"], cwd=ROOT, env=os.environ | quiet, check=False
    ).returncode


def gather() -> None:
    """Write every page of the site into build/docs."""
    shutil.rmtree(GATHERED, ignore_errors=True)
    shutil.copytree(DOCS, GATHERED, ignore=shutil.ignore_patterns("*.md", "*.py"))
    for name, text in pages().items():
        path = GATHERED / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


def pages() -> dict[str, str]:
    """Return the pages of the site by their place in it, with links as the site has its files."""
    written = {path.relative_to(ROOT).as_posix() for path in DOCS.rglob("*.md")}
    made = {
        place(file): _linked((ROOT / file).read_text("utf-8"), file)
        for file in ("README.md", *PROJECT, *sorted(written))
    }
    made |= {place(path.relative_to(ROOT).as_posix()): _notebook(path) for path in sorted(NOTEBOOKS.glob("*.ipynb"))}
    made |= _signature_pages()
    sources = {target for page, text in made.items() for target in _targets(text, page) if target.startswith("source/")}
    return made | {target: _source(target.removeprefix("source/").removesuffix(".md")) for target in sorted(sources)}


def _targets(text: str, page: str) -> list[str]:
    here = posixpath.dirname(page)
    return [posixpath.normpath(posixpath.join(here, target)) for _, target, _ in LINK.findall(text)]


def _linked(text: str, file: str) -> str:
    """Return the text of a file with its links changed as the site has its files."""

    def change(match: re.Match[str]) -> str:
        before, target, after = match.groups()
        linked = posixpath.normpath(posixpath.join(posixpath.dirname(file), target))
        if not (ROOT / linked).exists():
            return match[0]  # a mistake, which the strict build names
        return f"{before}{posixpath.relpath(place(linked), posixpath.dirname(place(file)) or '.')}{after}"

    return LINK.sub(change, text)


def place(file: str) -> str:
    """Return where the site has a file of the repository."""
    if file == "README.md":
        return "index.md"
    if file in PROJECT:
        return f"project/{file.lower()}"
    if file == "docs/how-to":
        return "how-to/README.md"
    if file.endswith(".ipynb"):
        return f"{file.removeprefix('docs/').removesuffix('.ipynb')}.md"
    return file.removeprefix("docs/") if file.startswith("docs/") else f"source/{file}.md"


def _notebook(path: Path) -> str:
    """Return a notebook as a page: its words, its code, and what was stored of its outputs."""
    parts = []
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(text)
        else:
            parts += [f"```python\n{text}\n```", *map(_output, cell["outputs"])]
    file = f"[{path.name}]({path.name})"
    return "\n\n".join([*parts, f"The notebook itself: {file}."]) + "\n"


def _output(output: dict[str, Any]) -> str:
    """Return one output of a notebook: its picture, or its text."""
    data = output.get("data", {})
    if "image/svg+xml" in data:
        return f"<div>{''.join(data['image/svg+xml']).replace(chr(10), ' ')}</div>"
    text = "".join(output.get("text") or data["text/plain"]).rstrip()
    return f"```text\n{text}\n```"


def _source(name: str) -> str:
    """Return a page that shows a file of the repository; a search does not look into it."""
    path = ROOT / name
    unsearched = "---\nsearch: { exclude: true }\n---\n"
    if path.is_dir():
        listing = "\n".join(f"- `{child.name}`" for child in sorted(path.iterdir()) if not child.name.startswith("_"))
        return f"{unsearched}# {name}\n\n{listing}\n"
    text = path.read_text("utf-8").rstrip()
    return f"{unsearched}# {name}\n\n```{LANGUAGES.get(path.suffix, 'text')}\n{text}\n```\n"


def _signature_pages() -> dict[str, str]:
    """Return a page for every room: its public names with their signatures, each on the first page that has it."""
    homes: dict[str, str] = {}
    made = {}
    for room in ROOMS:
        module = importlib.import_module(room)
        about = (inspect.getdoc(module) or "").split("\n\n")[0]
        paths = list(_public(module))
        blocks = [f"::: {path}\n" for path in paths if path not in homes]
        also = [f"- [`{path.rpartition('.')[2]}`]({homes[path]}.md#{path})" for path in paths if path in homes]
        homes |= dict.fromkeys((path for path in paths if path not in homes), room)
        made[f"api/{room}.md"] = "\n".join([f"# {room}\n\n{about}\n", *blocks, *also, ""])
    return made


def _public(module: ModuleType) -> Iterator[str]:
    """Yield where the public classes and functions of a room are defined."""
    for name in getattr(module, "__all__", sorted(vars(module))):
        value = getattr(module, name)
        if (inspect.isclass(value) or inspect.isfunction(value)) and value.__module__.startswith("kanab"):
            yield f"{value.__module__}.{value.__qualname__}"


if __name__ == "__main__":
    sys.exit(main())
