"""The reasons why a message is not counted: a closed list of words, and how often each occurred."""

from enum import StrEnum
from threading import Lock

from kanab.counted import floor_to_k
from kanab.errors import MessageError


class Reason(StrEnum):
    """One word for each way in which a post or a line of it is not counted."""

    FORMAT = "format"  # neither the text form nor the JSON form
    ENCODING = "encoding"  # not UTF-8
    CONTENT_TYPE = "content_type"  # something other than text or JSON
    LINE = "line"  # a line that cannot be read
    NUMBER = "number"  # a total that is not a finite number, or stands where none belongs
    LINKAGE = "linkage"  # a table that the plan does not need
    LEVEL = "level"  # an arm or a level that is not declared
    METRIC = "metric"  # a metric or ratio that is not declared
    COHORT = "cohort"  # a label that is none, or is missing
    INCOMPLETE = "incomplete"  # lines that are not one person's whole transition
    NONCE = "nonce"  # no nonce, or something else in its place
    UNVOUCHED = "unvouched"  # the same where the plan asks for a voucher
    FORGED = "forged"  # a nonce that is no voucher of the site's server, where the plan asks for one
    AHEAD = "ahead"  # a nonce or a cohort of the future: a clock is fast, or the collector's is slow
    EXPIRED = "expired"  # a nonce older than its life
    UNTIMELY = "untimely"  # an enrollment whose period is over
    EPOCH = "epoch"  # totals of people who enrolled before the store lost something
    SIZE = "size"  # more bytes or lines than one post may have
    ORIGIN = "origin"  # a web page that the plan does not name
    RATE = "rate"  # too many posts from one place
    BUSY = "busy"  # the collector cannot write at the moment
    CLOCK = "clock"  # the collector does not know what time it is
    EXPERIMENT = "experiment"  # unknown or closed: dropped without complaint
    LATE = "late"  # a cohort that is no longer open: dropped without complaint
    DUPLICATE = "duplicate"  # a nonce that was seen before: counted already

    @property
    def status(self) -> int:
        """The HTTP status of the response; dropped lines are no mistake of the sender, who must not try again."""
        return _STATUS.get(self, 400)


_STATUS = {
    Reason.EXPIRED: 410,
    Reason.UNTIMELY: 410,
    Reason.EPOCH: 410,
    Reason.SIZE: 413,
    Reason.ORIGIN: 403,
    Reason.UNVOUCHED: 403,
    Reason.FORGED: 403,
    Reason.RATE: 429,
    Reason.AHEAD: 503,
    Reason.BUSY: 503,
    Reason.CLOCK: 503,
    Reason.EXPERIMENT: 204,
    Reason.LATE: 204,
    Reason.DUPLICATE: 204,
}


def refused(reason: Reason, fact: str, remedy: str = "", at: str = "") -> MessageError:
    """Return the error of a post, with its reason and the status of the response."""
    return MessageError(fact, remedy, at=at, reason=reason, status=reason.status)


def epoch_error() -> MessageError:
    """Return the error for totals of people who enrolled in another epoch of the store."""
    return refused(
        Reason.EPOCH,
        "the store has lost what came before, and this post is about somebody who enrolled then",
        "Send nothing more of this person in these experiments; enroll newcomers under the epoch of the config.",
    )


class Drops:
    """How often each reason occurred since the start; safe to use from several threads."""

    def __init__(self) -> None:
        self._counts = dict.fromkeys(Reason, 0)
        self._lock = Lock()

    def add(self, *reasons: Reason | str) -> None:
        """Count each of the reasons once."""
        with self._lock:
            for reason in reasons:
                self._counts[Reason(reason)] += 1

    def floored(self, k: int) -> dict[str, int]:
        """Return every reason with its count floored to a multiple of k: small numbers are about single people."""
        with self._lock:
            return {reason.value: floor_to_k(count, k) for reason, count in self._counts.items()}
