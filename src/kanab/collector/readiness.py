"""What is wrong with a collector now: a closed list of problems, each with a sentence, without numbers."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum


class Problem(StrEnum):
    """One word for each thing that can be wrong."""

    CLOCK = "clock"
    STORE = "store"
    EPOCH = "epoch"
    QUEUE = "queue"
    SEAL = "seal"
    KEY = "key"
    EXPORT = "export"
    NOTIFY = "notify"
    LOSS = "loss"
    DELETED = "deleted"

    @property
    def stops(self) -> bool:
        """Whether a collector with this problem is not ready; what only a person can mend is only noted."""
        return self not in (Problem.EXPORT, Problem.NOTIFY, Problem.LOSS, Problem.DELETED)

    @property
    def stops_posts(self) -> bool:
        """Whether a collector with this problem takes no posts, or not all: others should get them meanwhile."""
        return self in (Problem.CLOCK, Problem.STORE, Problem.EPOCH)

    @property
    def line(self) -> str:
        """The word, what is wrong, and what to do."""
        return f"{self.value}: {_LINES[self]}"


_LINES = {
    Problem.CLOCK: "this machine's clock jumped, or others contradict it. Set it right, or confirm it.",
    Problem.STORE: "the store cannot be read or written. The log says why; clients send again until it can.",
    Problem.EPOCH: "the store is older than what was seen of it, and nothing is taken. Decide with kanab restore.",
    Problem.QUEUE: "more posts wait than can be written. Give the store a faster disk, or visitors another collector.",
    Problem.SEAL: "what is ripe is not sealed. The log says why; it is tried again, and posts are taken meanwhile.",
    Problem.KEY: "the key of a sealed cohort cannot be erased. Make the key file writable for the collector.",
    Problem.EXPORT: "the ledger of the last seal could not be exported. The log says why; it is tried again.",
    Problem.NOTIFY: "people could not be told about a seal or an alarm. The log says why; it is tried again.",
    Problem.LOSS: "an experiment has ended with an arm below k: a seal would destroy its people. The log says which.",
    Problem.DELETED: "records of open cohorts are missing: somebody deleted rows. Find out who may write the store.",
}


class Readiness:
    """What is wrong now. Any thread may say so, and any may ask."""

    def __init__(self) -> None:
        self.noted: set[Problem] = set()
        self._watched: list[tuple[Problem, Callable[[], bool]]] = []

    def set(self, problem: Problem, *, wrong: bool) -> None:
        """Note that something is wrong from now on, or no longer."""
        (self.noted.add if wrong else self.noted.discard)(problem)

    def watch(self, problem: Problem, is_wrong: Callable[[], bool]) -> None:
        """Have a function asked, too; it must be quick and not raise."""
        self._watched.append((problem, is_wrong))

    @contextmanager
    def guard(self, problem: Problem) -> Iterator[None]:
        """Note that something is wrong if what follows raises, and that it is right if it does not."""
        try:
            yield
        except BaseException:
            self.set(problem, wrong=True)
            raise
        self.set(problem, wrong=False)

    def problems(self) -> list[Problem]:
        """Return everything that is wrong now, in the order of the list."""
        wrong = self.noted | {problem for problem, is_wrong in self._watched if is_wrong()}
        return [problem for problem in Problem if problem in wrong]


def ready_answer(readiness: Readiness) -> tuple[int, str]:
    """Return status and text of the answer to whoever asks whether the collector is ready."""
    return _answer(readiness, lambda problem: problem.stops)


def posts_answer(readiness: Readiness) -> tuple[int, str]:
    """Return status and text of the answer to whoever asks whether posts should be sent here."""
    return _answer(readiness, lambda problem: problem.stops_posts)


def _answer(readiness: Readiness, stops: Callable[[Problem], bool]) -> tuple[int, str]:
    problems = readiness.problems()
    lines = "".join(f"{problem.line}\n" for problem in problems)
    return (503, lines) if any(map(stops, problems)) else (200, f"ok\n{lines}")
