"""Read tables that are directories of files with a log: Delta and Iceberg, through their own packages.

Such a directory also holds files that were deleted from the table, so that its files are never read one by one.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from kanab.errors import SourceError, need_extra

_METADATA = ".metadata.json"
_HINT = "version-hint.text"


def lake_at(place: Path) -> Literal["delta", "iceberg"] | None:
    """Return what kind of table a directory is, or the metadata file of one; None where it is none."""
    if (place / "_delta_log").is_dir():
        return "delta"
    if place.name.endswith(_METADATA) or any((place / "metadata").glob(f"*{_METADATA}")):
        return "iceberg"
    return None


def check_no_parts(files: Iterable[Path]) -> None:
    """Raise `SourceError` where files are parts of a Delta or Iceberg table, which may have deleted them."""
    for folder in {parent for file in files for parent in list(file.parents)[:8]}:
        if lake_at(folder) is not None:
            raise SourceError(
                f"files of {folder.name} are parts of a table with a log, and some of them may be deleted there",
                f"Name the directory itself: {folder.name}.",
            )


def open_lake(place: Path) -> Any:
    """Return a table on disk as an Arrow dataset or stream; raise `SourceError` where it cannot be read."""
    if lake_at(place) == "delta":
        need_extra("reading Delta tables", "delta", "deltalake")
        from deltalake import DeltaTable  # noqa: PLC0415 - an extra

        return _read(place.name, lambda: lake_rows(DeltaTable(str(place))))
    need_extra("reading Iceberg tables", "iceberg", "pyiceberg")
    from pyiceberg.table import StaticTable  # noqa: PLC0415 - an extra

    metadata = _iceberg_metadata(place)
    return _read(place.name, lambda: lake_rows(StaticTable.from_metadata(str(metadata))))


def lake_rows(table: Any) -> Any:
    """Return the rows of a DeltaTable, or of an Iceberg table or scan; anything else is returned as it is."""
    package = type(table).__module__.partition(".")[0]
    if package == "deltalake":
        return _read("the Delta table", table.to_pyarrow_dataset)
    if package == "pyiceberg":
        scan = table.scan() if hasattr(table, "scan") else table
        return _read("the Iceberg table", scan.to_arrow_batch_reader)
    return table


def _read(name: str, read: Any) -> Any:
    try:
        return read()
    except SourceError:
        raise
    except Exception as problem:  # of packages that are not imported here
        raise SourceError(
            f"{name} cannot be read ({type(problem).__name__})",
            "Check that its log and its files are whole. A table with deletion vectors is read by Spark (spark://…), "
            "or after they were purged.",
        ) from None


def _iceberg_metadata(place: Path) -> Path:
    """Return the file that describes a table as it is now; which one that is, is known to its catalog."""
    if place.is_file():
        return place
    folder = place / "metadata"
    files = sorted(folder.glob(f"*{_METADATA}"))
    if (folder / _HINT).is_file():
        version = (folder / _HINT).read_text(encoding="utf-8").strip()
        files = [file for file in files if file.name in (f"v{version}{_METADATA}", f"{version}{_METADATA}", version)]
    if len(files) != 1:
        raise SourceError(
            f"{place.name} is an Iceberg table with several states, and its catalog knows which holds",
            f"Name the file of one ({place.name}/metadata/….metadata.json), or give the table of pyiceberg in Python.",
        )
    return files[0]
