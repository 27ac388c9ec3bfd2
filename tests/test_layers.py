"""Imports go downwards only, also inside functions, and never in a circle."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "kanab"

# Each row may import from the rows above it and, within a folder, from its own folder.
# Things on one row are siblings and never meet.
LAYERS = (
    ("errors", "tabular"),
    ("arguments",),
    ("atomicfile", "tally"),
    ("plan", "stats"),
    ("counted", "report"),
    ("counting", "privacy"),
    ("analysis", "collector", "datasets", "inspection", "planning"),
    ("client", "paper", "scan"),
    ("__init__", "dashboard", "openfeature"),
    ("demo",),
    ("cli",),
)
RANK = {name: rank for rank, row in enumerate(LAYERS) for name in row}


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def part(module: str) -> str:
    """The layer's name of kanab.stats.ols is stats; of kanab itself __init__."""
    names = module.split(".")
    return names[1] if len(names) > 1 else "__init__"


def dotted(path: Path) -> str:
    names = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(names[:-1] if names[-1] == "__init__" else names)


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "kanab")
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: imports are absolute"
            if node.module == "kanab":
                for alias in node.names:
                    target = SOURCE / alias.name
                    yield f"kanab.{alias.name}" if target.is_dir() or target.with_suffix(".py").exists() else "kanab"
            elif node.module and node.module.split(".")[0] == "kanab":
                yield node.module


def test_every_module_has_a_layer() -> None:
    found = {part(dotted(path)) for path in modules()}
    assert found == set(RANK)


@pytest.mark.parametrize("path", modules(), ids=dotted)
def test_imports_go_down(path: Path) -> None:
    own = part(dotted(path))
    for target in imported(path):
        other = part(target)
        assert other == own or RANK[other] < RANK[own], f"{dotted(path)} imports {target}"


def test_there_is_no_circle() -> None:
    graph = {dotted(path): set(imported(path)) for path in modules()}
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
