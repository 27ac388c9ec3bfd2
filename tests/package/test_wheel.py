"""The built wheel, with nothing beside it but what an extra declares: does what the extra is for work?

A folder gets links to the packages that the wheel and one extra need (with all that these need), and Python sees that
folder alone. So a package that is used but not declared is missing here, as it would be for a user.
"""

import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from kanab.datasets import shop_rows

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
EXTRAS = {
    "client": "from kanab.client.cookies import Cookies, read_keys; import cryptography; read_keys('00' * 32)",
    "openfeature": "import kanab.openfeature",
    "dp": "from kanab.privacy.epsilon.mechanism import draw, Scale; import opendp",
    "excel": "import python_calamine",
    "fast": "import numba; from kanab.scan.count import kernel",
    "server": "import uvicorn, kanab.dashboard.dashboard; from kanab.collector.http.app import Collector",
    "postgres": "import ibis, psycopg; ibis.postgres",
    "mysql": "import ibis, pymysql",
    "clickhouse": "import ibis; ibis.clickhouse; import clickhouse_connect",
    "datafusion": "import ibis, datafusion",
    "delta": "import deltalake",
    "iceberg": "import pyiceberg.table",
}
"""What must at least be possible with one extra alone; ``sql`` and none are tested by what people do with them."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    files = [str(path) for path in folder.iterdir()]
    checked = subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", *files], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout
    return next(folder.glob("*.whl"))


def needed(requirements: list[str], extras: set[str], seen: set[str]) -> Iterator[str]:
    """Yield the names of all distributions that some requirements ask for, with what they ask for in turn."""
    for text in requirements:
        wanted = Requirement(text)
        name = re.sub(r"[-_.]+", "-", wanted.name).lower()
        if wanted.marker is not None and not any(wanted.marker.evaluate({"extra": extra}) for extra in extras or {""}):
            continue
        key = f"{name}[{','.join(sorted(wanted.extras))}]"
        if key in seen:
            continue
        seen.add(key)
        if name != "kanab":
            try:
                found = distribution(name)
            except PackageNotFoundError:
                continue  # for another platform or Python
            yield name
        else:
            found = distribution("kanab")
        yield from needed(found.requires or [], set(wanted.extras) | {""}, seen)


def alone(wheel: Path, extra: str, folder: Path) -> Path:
    """Return a folder that holds the wheel and links to what it needs with one extra, and nothing else."""
    folder.mkdir()
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    for name in set(needed([f"kanab[{extra}]" if extra else "kanab"], {""}, set())):
        for file in distribution(name).files or ():
            first = file.parts[0]
            if first in ("..", "bin", "__pycache__"):
                continue
            link(Path(str(distribution(name).locate_file(first))), folder / first)
    return folder


def link(source: Path, target: Path) -> None:
    """Link to a file or folder; folders that several distributions share are made, and their entries linked."""
    if target.is_symlink() and target.resolve() != source.resolve() and source.is_dir():
        shared = target.resolve()
        target.unlink()
        target.mkdir()
        for entry in shared.iterdir():
            link(entry, target / entry.name)
    if not target.exists():
        target.symlink_to(source)


def run(folder: Path, code: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    start = f"import sys; sys.path.insert(0, {str(folder)!r}); "
    env = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    return subprocess.run(
        [sys.executable, "-S", "-c", start + code], cwd=cwd, env=env, capture_output=True, text=True, check=False
    )


def kanab(folder: Path, words: list[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    return run(folder, f"from kanab.cli.main import main; sys.argv = ['kanab', *{words!r}]; main()", cwd)


@pytest.fixture(scope="module")
def core(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return alone(wheel, "", tmp_path_factory.mktemp("core") / "site")


def test_the_wheel_alone_analyzes_a_csv_file_and_a_release(core: Path, tmp_path: Path) -> None:
    flags = ["--arm", "variant", "--metric", "bought"]
    assert kanab(core, ["example", "visits.csv", "--people", "4000"], tmp_path).returncode == 0
    told = kanab(core, ["analyze", "visits.csv", *flags, "--html", "report.html"], tmp_path)
    assert told.returncode == 0, told.stderr
    released = kanab(core, ["release", "visits.csv", *flags, "-o", "r.json", "--new-ledger"], tmp_path)
    assert released.returncode == 0, released.stderr
    assert kanab(core, ["analyze", "r.json", "--brief"], tmp_path).returncode == 0
    assert kanab(core, ["audit", "r.json"], tmp_path).returncode == 0


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (["serve", "--plan", "kanab.toml", "--data", "data", "--port", "0"], "server"),
        (["seal", "--plan", "kanab.toml", "--data", "data"], "server"),
        (["demo", "data", "--exit"], "server"),
        (["dashboard", ".", "--port", "0"], "server"),
        (["analyze", "people.parquet", "--arm", "a", "--metric", "y"], "sql"),
        (["analyze", "postgresql://localhost/shop", "--table", "t", "--arm", "a", "--metric", "y"], "sql"),
    ],
)
def test_a_missing_extra_is_named_before_anything_is_touched(
    core: Path, tmp_path: Path, words: list[str], extra: str
) -> None:
    assert kanab(core, ["init"], tmp_path).returncode == 0
    (tmp_path / "people.parquet").write_bytes(b"PAR1")
    before = sorted(tmp_path.rglob("*"))
    told = kanab(core, words, tmp_path)
    assert told.returncode == 2, told.stdout + told.stderr
    assert f"kanab[{extra}]" in told.stderr
    assert "Traceback" not in told.stderr
    assert sorted(tmp_path.rglob("*")) == before


def test_with_sql_alone_a_parquet_file_is_analyzed(wheel: Path, tmp_path: Path) -> None:
    import pyarrow as pa  # noqa: PLC0415 - to write the file
    import pyarrow.parquet as pq  # noqa: PLC0415

    pq.write_table(pa.table(shop_rows(4_000)), tmp_path / "visits.parquet")
    folder = alone(wheel, "sql", tmp_path / "site")
    told = kanab(folder, ["analyze", "visits.parquet", "--arm", "variant", "--metric", "bought", "--brief"], tmp_path)
    assert told.returncode == 0, told.stderr
    assert "bought (points)" in told.stdout


@pytest.mark.parametrize("extra", EXTRAS)
def test_one_extra_alone_brings_what_it_needs(wheel: Path, tmp_path: Path, extra: str) -> None:
    told = run(alone(wheel, extra, tmp_path / "site"), f"import kanab; {EXTRAS[extra]}", tmp_path)
    assert told.returncode == 0, told.stderr[-1500:]
