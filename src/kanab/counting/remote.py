"""Read files that are elsewhere: over HTTP through a temporary copy, in object stores (s3, gs, abfs) through Arrow.

A message about an address never repeats its user, its password or its options: those of a signed URL are a key.
"""

import http.client
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import unquote, urlsplit

from kanab.counting.files import file_kind, has_file_ending
from kanab.counting.parquet_files import partition_kinds
from kanab.errors import SourceError

_WEB = ("http", "https")
_STORES = ("s3", "gs", "gcs", "abfs", "abfss", "hdfs")
_TIMEOUT = 60.0  # seconds without a byte
_BYTES_AT_ONCE = 1 << 20


def is_remote(place: str) -> bool:
    """Return whether a text is the address of a file, rather than a connection."""
    return place.partition("://")[0] in (*_WEB, *_STORES) and "://" in place


def remote_dataset(place: str) -> Any:
    """Return Parquet files of an object store as an Arrow dataset; None for what has to be copied to be read."""
    if _scheme(place) in _WEB or _name(place).lower().endswith(".zip"):
        return None
    import pyarrow.fs as stores  # noqa: PLC0415 - comes with the [sql] extra

    with _explained(place):
        system, path = stores.FileSystem.from_uri(place)
        kind = system.get_file_info(path).type
        if kind == stores.FileType.NotFound:
            raise FileNotFoundError
        if kind == stores.FileType.File and file_kind(Path(path)) != "parquet":
            return None
        return _dataset(system, [path] if kind == stores.FileType.File else _files_in(system, path))


def _files_in(system: Any, path: str) -> list[str]:
    import pyarrow.fs as stores  # noqa: PLC0415 - comes with the [sql] extra

    paths = [info.path for info in system.get_file_info(stores.FileSelector(path, recursive=True)) if info.is_file]
    if any("/_delta_log/" in each or each.endswith(".metadata.json") for each in paths):
        raise SourceError(
            f"{PurePosixPath(path).name} is a table with a log, and some of its files may be deleted there",
            "Open it in Python, by deltalake's DeltaTable or by a catalog of pyiceberg, and give that.",
        )
    files = sorted(each for each in paths if each.lower().endswith((".parquet", ".pq")))
    if not files:
        raise FileNotFoundError
    return files


def _dataset(system: Any, files: list[str]) -> Any:
    """Return Parquet files as a dataset; folders that name columns are typed by the rules of files on disk."""
    import pyarrow as pa  # noqa: PLC0415 - comes with the [sql] extra
    import pyarrow.dataset as ds  # noqa: PLC0415

    kinds = partition_kinds([Path(file) for file in files])
    types = {"int64": pa.int64(), "float64": pa.float64(), "boolean": pa.bool_(), "string": pa.string()}
    folders = ds.partitioning(pa.schema([(name, types[kind]) for name, kind in kinds.items()]), flavor="hive")
    return ds.dataset(files, filesystem=system, format="parquet", partitioning=folders if kinds else None)


@contextmanager
def copied(place: str) -> Iterator[Path]:
    """Copy a file into a private folder for a while; raise `SourceError` where it does not arrive whole."""
    with _explained(place):
        urlsplit(place)
    name = _name(place)
    if not has_file_ending(name):
        file_kind(Path(name))  # which names the kinds that there are
    with TemporaryDirectory(prefix="kanab-") as folder:
        file = Path(folder) / name
        with _explained(place), file.open("wb") as target:
            for part in _web_parts(place) if _scheme(place) in _WEB else _store_parts(place):
                target.write(part)
        yield file


def _web_parts(place: str) -> Iterator[bytes]:
    with urllib.request.urlopen(place, timeout=_TIMEOUT) as answer:
        expected, arrived = answer.headers.get("Content-Length"), 0
        while part := answer.read(_BYTES_AT_ONCE):
            arrived += len(part)
            yield part
        if expected is not None and arrived != int(expected):
            raise EOFError


def _store_parts(place: str) -> Iterator[bytes]:
    import pyarrow.fs as stores  # noqa: PLC0415 - comes with the [sql] extra

    system, path = stores.FileSystem.from_uri(place)
    with system.open_input_stream(path, compression=None) as stream:
        while part := stream.read(_BYTES_AT_ONCE):
            yield part


@contextmanager
def _explained(place: str) -> Iterator[None]:
    """Turn what goes wrong on the way into a `SourceError`, without the address's secrets."""
    host = "that address"
    with suppress(ValueError):
        host = urlsplit(place).netloc.rpartition("@")[2]
    where = f"{_name(place) or 'the file'} cannot be read from {host}"
    try:
        yield
    except SourceError:
        raise
    except urllib.error.HTTPError as problem:
        problem.close()
        raise SourceError(f"{where}: the server answers {problem.code}", "Check the address and your rights.") from None
    except FileNotFoundError:
        raise SourceError(
            f"{where}: there is no such file", "Check the address; of several files, name their directory."
        ) from None
    except (EOFError, http.client.IncompleteRead):
        raise SourceError(f"{where}: it did not arrive whole", "Try again, or copy the file here first.") from None
    except Exception as problem:  # of sockets, of Arrow's file systems
        raise SourceError(
            f"{where} ({type(problem).__name__})",
            "Check the address, the network and the credentials in the environment, or copy the file here first.",
        ) from None


def _scheme(place: str) -> str:
    return place.partition("://")[0]


def _name(place: str) -> str:
    with suppress(ValueError):
        return PurePosixPath(unquote(urlsplit(place).path)).name
    return ""
