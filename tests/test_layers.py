"""Imports go downwards only, also inside functions, and never in a circle."""

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "kanab"

# Each row may import from the rows above it and, within a folder, from its own folder.
# Things on one row are siblings and never meet.
CORE = (
    ("choices", "errors", "spreadsheets", "tabular"),
    ("fields",),
    ("description",),
    ("arguments",),
    ("atomicfile", "tally"),
    ("dataframes",),
    ("plan", "stats"),
    ("counted", "report"),
    ("counting", "privacy"),
    ("analysis", "datasets"),
    ("__init__",),
)
# Features: nothing in the core imports them, and whoever deletes one (and those below it that use it) finds the rest
# standing.
ROOMS = (
    ("collector", "inspection", "planning", "portfolio", "scan"),
    ("client", "dashboard"),
    ("agents", "demo", "notify", "openfeature"),
    ("cli",),
)
ON_FIRST_USE = {"inspection", "planning", "portfolio", "scan"}  # `import kanab` does not load kanab.planning and so on
RANK = {name: rank for rank, row in enumerate(CORE + ROOMS) for name in row}


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def part(module: str) -> str:
    """The layer's name of kanab.stats.regression is stats; of kanab itself __init__."""
    names = module.split(".")
    return names[1] if len(names) > 1 else "__init__"


def dotted(path: Path) -> str:
    names = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(names[:-1] if names[-1] == "__init__" else names)


@cache
def imported(path: Path) -> frozenset[str]:
    """The modules of kanab that a file imports, also inside functions."""
    return frozenset(_imported(path))


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "kanab")
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: imports are absolute"
            if node.module and node.module.split(".")[0] == "kanab":
                folder = SOURCE.parent.joinpath(*node.module.split("."))
                for alias in node.names:
                    target = folder / alias.name
                    is_module = target.is_dir() or target.with_suffix(".py").exists()
                    yield f"{node.module}.{alias.name}" if is_module else node.module


def test_every_module_has_a_layer() -> None:
    assert {part(dotted(path)) for path in modules()} == set(RANK)


def test_imports_go_down() -> None:
    wrong = [
        f"{dotted(path)} imports {target}"
        for path in modules()
        for target in imported(path)
        for here, there in [(part(dotted(path)), part(target))]
        if here != there and RANK[there] >= RANK[here] and not (here == "__init__" and there in ON_FIRST_USE)
    ]
    assert wrong == []


def test_there_is_no_circle() -> None:
    graph = {dotted(path): imported(path) for path in modules()}
    done: set[str] = set()

    def visit(module: str, trail: tuple[str, ...]) -> None:
        assert module not in trail, " → ".join([*trail, module])
        if module not in done:
            for target in graph.get(module, ()):
                visit(target, (*trail, module))
            done.add(module)

    for module in graph:
        visit(module, ())


def test_the_tally_needs_only_numpy_and_msgspec() -> None:
    """What adds counts must stay small enough to read in one sitting."""
    outside = set()
    for path in (SOURCE / "errors.py", SOURCE / "tabular.py", *(SOURCE / "tally").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                outside |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                outside.add(node.module.split(".")[0])
    assert outside - set(sys.stdlib_module_names) == {"kanab", "numpy", "msgspec"}


IMPORT_ALL = """
import importlib, pathlib, sys
import kanab
source = pathlib.Path(kanab.__file__).parent
assert source == pathlib.Path(sys.argv[1]) / "kanab", source
for path in sorted(source.rglob("*.py")):
    module = ".".join(path.relative_to(source.parent).with_suffix("").parts).removesuffix(".__init__")
    importlib.import_module(module)
"""


def with_users(*rooms: str) -> set[str]:
    """Rooms, and all that import them, directly or not; `kanab` itself does without."""
    users: dict[str, set[str]] = {}
    for path in modules():
        for target in imported(path):
            users.setdefault(part(target), set()).add(part(dotted(path)))
    gone: set[str] = set()
    todo = set(rooms)
    while todo:
        gone |= todo
        todo = set().union(*(users.get(room, set()) for room in todo)) - gone - {"__init__"}
    return gone


@pytest.mark.slow
@pytest.mark.parametrize("room", [room for row in ROOMS[:-1] for room in row] + ["all"])
def test_what_is_left_without_a_room_can_be_imported(room: str, tmp_path: Path) -> None:
    gone = with_users(*(room for row in ROOMS for room in row) if room == "all" else (room, "cli"))
    assert gone.isdisjoint(name for row in CORE for name in row)

    def deleted(folder: str, names: list[str]) -> list[str]:
        return [name for name in names if name.removesuffix(".py") in gone] if Path(folder) == SOURCE else []

    shutil.copytree(SOURCE, tmp_path / "kanab", ignore=deleted)
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL, str(tmp_path)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
