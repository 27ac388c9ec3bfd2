"""House rules as programs."""

import ast
import inspect
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType

import click
import pytest

import kanab
import kanab.counting
import kanab.plan
import kanab.planning
import kanab.portfolio
import kanab.privacy
import kanab.scan
import kanab.stats
import kanab.tally
from kanab import description, fields
from kanab.analysis.methods import METHODS
from kanab.cli.main import cli
from kanab.plan.model import Budget, Cohorts, CovariatePlan, DecisionRule, ExperimentPlan, MetricPlan, Plan
from kanab.plan.notify_plan import MailPlan, NotifyPlan

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "kanab"

PUBLIC = (
    kanab,
    kanab.counting,
    kanab.plan,
    kanab.planning,
    kanab.portfolio,
    kanab.privacy,
    kanab.scan,
    kanab.stats,
    kanab.tally,
)
"""The door and the second api: every name in their ``__all__`` is documented."""

DESCRIBED = (kanab.Mean, kanab.Ratio, kanab.Quantile, kanab.Covariate, kanab.Number, kanab.Rows, kanab.Reading)
MOST_PARAMETERS = 15
"""What is longer takes a value, as ``readout`` takes `Rows` and `Reading`."""


HEAVY = """import sys, kanab.cli.main
print(sorted({'kanab.analysis', 'kanab.privacy', 'kanab.stats', 'scipy'} & set(sys.modules)))
[getattr(kanab, name) for name in dir(kanab)], dict(kanab.cli.main.COMMANDS)
print(sorted({
    'duckdb', 'ibis', 'jinja2', 'mcp', 'numba', 'pandas', 'polars', 'pyarrow', 'rich',
    'scipy.linalg', 'scipy.special', 'scipy.stats', 'starlette', 'uvicorn',
} & set(sys.modules)))
"""


@pytest.mark.slow
def test_kanab_imports_nothing_heavy_before_it_is_needed() -> None:
    result = subprocess.run([sys.executable, "-c", HEAVY], capture_output=True, text=True, check=True)
    assert result.stdout.split("\n") == ["[]", "[]", ""]


def test_names_that_are_imported_on_first_use_come_from_where_type_checkers_see_them() -> None:
    tree = ast.parse((SOURCE / "__init__.py").read_text(encoding="utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    seen = {alias.name: node.module for node in imports for alias in node.names if node.module.startswith("kanab.")}
    assert {name: f"kanab.{home}" for name, home in kanab._HOMES.items()} == seen
    assert sorted(seen) == kanab.__all__


def test_commands_have_the_names_by_which_they_are_found() -> None:
    assert {name: command.name for name, command in cli.commands.items()} == {name: name for name in cli.commands}


@pytest.mark.parametrize("module", PUBLIC, ids=lambda module: module.__name__)
def test_the_public_names_are_the_sorted_ones_in_all(module: ModuleType) -> None:
    assert list(module.__all__) == sorted(module.__all__)
    assert all(hasattr(module, name) for name in module.__all__)


def test_no_public_function_has_its_modules_name() -> None:
    for name in kanab.__all__:
        thing = getattr(kanab, name)
        if inspect.isfunction(thing):
            assert thing.__module__.rpartition(".")[2] != name


@pytest.mark.parametrize("module", PUBLIC, ids=lambda module: module.__name__)
def test_every_public_name_is_documented(module: ModuleType) -> None:
    reference = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    missing = [name for name in module.__all__ if not re.search(rf"`{name}\b", reference)]
    assert missing == []


def test_calls_in_the_reference_are_those_of_the_code() -> None:
    reference = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    functions = {name: getattr(module, name) for module in PUBLIC for name in module.__all__}
    checked = 0
    for name, arguments in re.findall(r"`(\w+)\(([^`]*)\)`", reference):
        if name not in functions:
            continue
        words = [word.strip().partition("=")[0] for word in arguments.split(",")]
        named = {word for word in words if re.fullmatch(r"[a-z_][a-z0-9_]*", word)}
        assert named <= set(inspect.signature(functions[name]).parameters), f"{name}({arguments})"
        checked += 1
    assert checked > 50


LONG = (kanab.readout, kanab.count, kanab.make_plan, kanab.analyze)


@pytest.mark.parametrize("function", LONG, ids=lambda function: function.__name__)
def test_every_argument_of_what_counts_is_in_the_table_of_arguments(function: Callable[..., object]) -> None:
    reference = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    table = reference.split("| argument of `readout`")[1].split("\n\n")[0]
    named = {name for line in table.splitlines() for name in re.findall(r"`(\w+)`", line.split(" | ")[0])}
    assert set(inspect.signature(function).parameters) - {"source", "released"} <= named


@pytest.mark.parametrize("cls", DESCRIBED, ids=lambda cls: cls.__name__)
def test_the_reference_shows_the_fields_of_every_described_value(cls: type) -> None:
    reference = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    head, *rows = fields.reference(cls).splitlines()
    shown = reference.partition(f"{head}\n")[2].partition("\n\n")[0].splitlines()
    assert shown == rows


def test_the_reference_shows_every_class_of_described_values() -> None:
    classes = {value for value in vars(description).values() if inspect.isclass(value)}
    own = {cls for cls in classes if cls.__module__ == description.__name__ and not cls.__name__.startswith("_")}
    assert own == {*DESCRIBED}


EXPLAINED = (kanab.readout, kanab.count, kanab.release, kanab.analyze, kanab.make_plan, kanab.power)


@pytest.mark.parametrize("function", EXPLAINED, ids=lambda function: function.__name__)
def test_help_answers_every_parameter_by_itself(function: Callable[..., object]) -> None:
    explained = re.findall(r"^(\w+): ", inspect.getdoc(function) or "", re.MULTILINE)
    assert explained == list(inspect.signature(function).parameters)


PLANS = (Plan, MetricPlan, CovariatePlan, ExperimentPlan, DecisionRule, Cohorts, Budget, NotifyPlan, MailPlan)
NOT_WRITTEN = {"only", "beside_exact"}
"""Keys of plain data alone: arms that flags name, and what plans of before said."""


def test_every_key_of_plan_files_is_documented() -> None:
    pages = [ROOT / "docs" / "how-to" / name for name in ("plan.md", "epsilon.md")]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    keys = [field.key for cls in PLANS for field in fields.described(cls).values()]
    assert [key for key in keys if key not in NOT_WRITTEN and not re.search(rf"\b{key}\b", text)] == []


def test_no_public_function_has_more_than_fifteen_parameters() -> None:
    functions = {name: getattr(module, name) for module in PUBLIC for name in module.__all__}
    counts = {
        name: len(inspect.signature(each).parameters) for name, each in functions.items() if inspect.isfunction(each)
    }
    assert len(counts) > 50
    assert {name: count for name, count in counts.items() if count > MOST_PARAMETERS} == {}


def test_every_command_and_option_is_documented() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")])
    for name, command in cli.commands.items():
        assert f"kanab {name}" in text
        for option in command.params:
            if isinstance(option, click.Option):
                assert option.opts[0] in text, f"kanab {name} {option.opts[0]}"


# ── rooms, names and words ─────────────────────────────────────────────────────────────────────


NAMING = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.arg, ast.Name)


COMPREHENSION = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@cache
def nodes() -> list[tuple[str, ast.AST]]:
    """Everything in the source that has a name, and every comprehension, with the file that it stands in."""
    kept: list[tuple[str, ast.AST]] = []
    for path in sorted(SOURCE.rglob("*.py")):
        place, tree = path.relative_to(SOURCE).as_posix(), ast.parse(path.read_text(encoding="utf-8"))
        kept += [(place, node) for node in ast.walk(tree) if isinstance(node, (*NAMING, *COMPREHENSION))]
    return kept


def test_rooms_can_be_looked_through_and_modules_hold_one_thought() -> None:
    folders = {path.parent for path in SOURCE.rglob("*.py")}
    assert [folder.name for folder in folders if len(list(folder.glob("*.py"))) > 26] == []
    assert [path.name for path in SOURCE.rglob("*.py") if len(path.read_text("utf-8").splitlines()) > 700] == []


TO_BE_RENAMED: frozenset[str] = frozenset()
"""Names that two modules still have; none may be added."""


def test_no_two_modules_have_the_same_name() -> None:
    """But for commands, whose files are named as they are."""
    modules = [path for path in SOURCE.rglob("*.py") if path.name != "__init__.py"]
    times = Counter(path.stem for path in modules if "cli" not in path.parts)
    assert {name for name, count in times.items() if count > 1} <= TO_BE_RENAMED


LINES: dict[str, int] = {
    "collector": 8_990,
    "counting": 7_980,
    "stats": 7_680,
    "privacy": 6_340,
    "scan": 5_300,
    "inspection": 4_570,
    "analysis": 5_070,
    "cli": 4_180,
    "report": 2_180,
    "dashboard": 2_480,
    "plan": 2_330,
    "planning": 2_320,
    "": 2_100,
    "client": 1_880,
    "tally": 1_710,
    "portfolio": 850,
    "notify": 710,
    "agents": 720,
    "demo": 340,
}
"""The most lines of a package; "" are the modules beside them. Who needs more takes them from another package."""


def package_of(path: Path) -> str:
    inside = path.relative_to(SOURCE)
    return inside.parts[0] if len(inside.parts) > 1 else ""


def test_no_package_has_more_lines_than_its_budget() -> None:
    lines: Counter[str] = Counter()
    for path in SOURCE.rglob("*.py"):
        lines[package_of(path)] += len(path.read_text(encoding="utf-8").splitlines())
    assert lines.keys() == LINES.keys()
    assert {package: count for package, count in lines.items() if count > LINES[package]} == {}


NESTED: dict[str, int] = {
    "privacy": 68,
    "inspection": 42,
    "counting": 41,
    "analysis": 38,
    "scan": 25,
    "stats": 15,
    "collector": 12,
    "report": 8,
    "dashboard": 11,
    "planning": 9,
    "client": 6,
    "notify": 4,
    "portfolio": 4,
    "agents": 2,
    "tally": 2,
}
"""Comprehensions that a reader has to unpack: of more than one ``for``, or of more than two conditions. Only fewer."""


def conditions(comprehension: ast.comprehension) -> int:
    """How many conditions a ``for`` of a comprehension has; those joined by "and" and "or" count each."""
    joined = [
        len(node.values) - 1 for test in comprehension.ifs for node in ast.walk(test) if isinstance(node, ast.BoolOp)
    ]
    return len(comprehension.ifs) + sum(joined)


def test_comprehensions_need_no_unpacking() -> None:
    nested: Counter[str] = Counter()
    for place, node in nodes():
        if isinstance(node, COMPREHENSION):
            loops = node.generators
            nested[place.rpartition("/")[0].partition("/")[0]] += len(loops) > 1 or sum(map(conditions, loops)) > 2
    assert {package: count for package, count in nested.items() if count > NESTED.get(package, 0)} == {}


def test_every_room_says_what_it_is_for() -> None:
    for path in SOURCE.rglob("__init__.py"):
        docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
        assert docstring, path
        assert docstring.splitlines()[0].endswith((".", ":")), path


@pytest.mark.slow
def test_no_class_name_is_defined_twice() -> None:
    homes: dict[str, list[str]] = {}
    for path, node in nodes():
        if isinstance(node, ast.ClassDef):
            homes.setdefault(node.name, []).append(path)
    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}


def bound_names(node: ast.AST) -> str | None:
    """The name that a node gives to something."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return node.name
    if isinstance(node, ast.arg):
        return node.arg
    return node.id if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) else None


@pytest.mark.slow
def test_words_that_contributing_avoids_are_in_no_name() -> None:
    table = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("## Words")[1]
    rows = [line.split("|") for line in table.splitlines() if line.startswith("| ")][1:]
    whole = {word for row in rows if row[2].strip() == "a variable's name" for word in re.findall(r"`(\w+)`", row[3])}
    parts = {word for row in rows for word in re.findall(r"`(\w+)`", row[3])} - whole
    assert {"found", "one"} <= whole
    assert len(parts) >= 10
    bad = [
        f"{path}: {name}"
        for path, node in nodes()
        if (name := bound_names(node))
        and (name in whole or parts & set(map(str.lower, re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name))))
    ]
    assert bad == []


def test_the_files_that_architecture_and_its_tables_name_are_there() -> None:
    table = ROOT / "docs" / "where-is-what.md"
    pages = [ROOT / "ARCHITECTURE.md", table, *(ROOT / "docs" / "decisions").glob("*.md")]
    texts = {page: page.read_text(encoding="utf-8") for page in pages}
    named = {name for text in texts.values() for name in re.findall(r"`((?:\w+/)*\w+\.(?:py|js))`", text)}
    assert {name for name in named if not any((folder / name).is_file() for folder in (SOURCE, ROOT))} == set()
    rows = [line for line in texts[table].splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 150
    proofs = {name for row in rows for name in re.findall(r"`(\w+/test_\w+)`", row)}
    assert {name for name in proofs if not (ROOT / "tests" / f"{name}.py").is_file()} == set()


def test_architecture_names_every_package_on_two_pages() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert {package for package in packages if f"`{package}/`" not in text} == set()
    assert len(text.splitlines()) <= 120


FILES_OF_A_METHOD = 4
"""Its module, the list of methods, and two that read its rows; `stats/` has its mathematics."""
READ_WIDELY = {"segments": 6}
"""What the decision, the dashboard, assistants and the attacker read as well."""


def test_a_method_of_a_readout_occupies_few_files() -> None:
    # a scan has segments of its own, and statistics know of no readout
    paths = [path for path in SOURCE.rglob("*.py") if path.relative_to(SOURCE).parts[0] not in ("scan", "stats")]
    texts = {path.relative_to(SOURCE).as_posix(): path.read_text(encoding="utf-8") for path in paths}
    for method in METHODS:
        module = type(method).__module__
        marks = [module, *(f'["{name}"]' for name in method.tables), *(f'get("{name}"' for name in method.tables)]
        files = {path for path, text in texts.items() if any(mark in text for mark in marks)}
        files.add(f"{module.removeprefix('kanab.').replace('.', '/')}.py")
        assert len(files) <= READ_WIDELY.get(method.name, FILES_OF_A_METHOD), (method.name, sorted(files))


def test_every_how_to_page_is_listed() -> None:
    pages = ROOT / "docs" / "how-to"
    listed = (pages / "README.md").read_text(encoding="utf-8")
    assert [page.name for page in pages.glob("*.md") if f"({page.name})" not in listed] == ["README.md"]


def test_no_file_names_a_registry_or_a_machine() -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()
    forbidden = re.compile(r"index-url|//pypi\.|registry\.npmjs|/root/|/home/\w", re.IGNORECASE)
    here = Path(__file__).relative_to(ROOT).as_posix()
    for name in tracked:
        path = ROOT / name
        if name != here and path.is_file() and path.stat().st_size < 1_000_000:
            assert not forbidden.search(path.read_text(encoding="utf-8", errors="replace")), name
