"""Programs that tests need and no wheel brings: the system's, else Debian's, where we may install them."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

ALSO_HERE = ("/usr/sbin", "/usr/local/sbin", "/usr/libexec")
LOCK = Path(tempfile.gettempdir()) / "kanab-apt.lock"


def find_program(*names: str, package: str) -> str | None:
    """Return the path of the first of these programs that is here, after installing Debian's package if none is.

    Of several workers one installs and the others wait, whatever they need: who loses dpkg's own lock goes without.
    """
    if (path := _find(names)) or os.name != "posix" or os.geteuid() != 0 or not shutil.which("apt-get"):
        return path
    import fcntl  # noqa: PLC0415 - not on Windows

    with LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for words in (f"install {package}", "update", f"install {package}"):  # a new machine has no lists yet
            if (path := _find(names)) is None:
                _apt_get(words)
    return path or _find(names)


def need_program(*names: str, package: str) -> str:
    """Return the path of a program as ``find_program`` does, or skip the test and say what to install."""
    path = find_program(*names, package=package)
    if path is None:
        pytest.skip(missing(names[0], package))
    return path


def missing(name: str, package: str) -> str:
    """Return what to say where a program is missing and could not be installed."""
    return f"there is no {name} here. Install it (Debian, as root: apt-get install {package})"


def _find(names: tuple[str, ...]) -> str | None:
    path = os.pathsep.join((os.environ.get("PATH", ""), *ALSO_HERE))
    return next((found for name in names if (found := shutil.which(name, path=path))), None)


def _apt_get(words: str) -> None:
    command = ["apt-get", "-y", "-o", "DPkg::Lock::Timeout=600", *words.split()]  # somebody else's apt-get may run
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(command, capture_output=True, check=False, env=quiet)
