"""The program without a process of its own: what the console script calls, with its arguments and its exit code."""

import shlex
from collections.abc import Callable
from dataclasses import dataclass

Program = Callable[..., "Ended"]


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str


def transcript(program: Program, command: str, cases: str) -> str:
    """What a command prints for each line of words: errors with the exit code, and answers.

    Lines about usage are left out: they name the program, which is pytest here.
    """
    shown = []
    for line in cases.strip().splitlines():
        ended = program(*shlex.split(f"{command} {line}"))
        shown += [f"$ kanab {command} {line}".rstrip(), *([f"exit {ended.code}"] if ended.code else [])]
        shown += [(ended.out + ended.err).rstrip(), ""]
    lines = "\n".join(shown).split("\n")
    return "\n".join(line for line in lines if not line.startswith(("Usage: ", "Try '")))
