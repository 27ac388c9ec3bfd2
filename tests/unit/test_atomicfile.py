"""Files that are there whole or not at all, and what is no file."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kanab.atomicfile import staged, write_whole


def test_a_file_is_replaced_whole_and_nothing_else_is_left(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    write_whole(file, "before")
    with staged(file, "never finished"):
        pass
    assert (file.read_text(), [*tmp_path.iterdir()]) == ("before", [file])
    write_whole(file, "after")
    assert (file.read_text(), [*tmp_path.iterdir()]) == ("after", [file])


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_or_a_device_is_written_into_and_never_replaced(tmp_path: Path) -> None:
    """As root, -o /dev/null made a file of the device."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor() as pool:
        reading = pool.submit(pipe.read_text)
        write_whole(pipe, "a ledger")
        assert reading.result(10) == "a ledger"
    assert (pipe.is_fifo(), [*tmp_path.iterdir()]) == (True, [pipe])
