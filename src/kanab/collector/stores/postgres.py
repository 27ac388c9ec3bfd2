"""A store in PostgreSQL, for several collectors: they share the nonce table.

Whoever appends holds a shared lock until the commit, whoever seals an exclusive one, so that a
seal sees all records or none of a group. A lost connection is opened again, and what was under
way is done again once: if the commit had happened after all, the nonces say so.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from kanab.collector.stores.store import (
    FORGET_AT_ONCE,
    Appended,
    CountedPost,
    Encrypt,
    PostOutcome,
    Store,
    newer_schema_error,
    of_epoch,
    older_schema_error,
    refuse_others,
    sort_posts,
)
from kanab.errors import MissingExtraError, StoreAwayError, StoreError

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[Any]

_T = TypeVar("_T")
_Keys = list[tuple[int, bytes]]  # hours and nonces
_LOCK = 0x6B616E6162  # "kanab"; one store to a database

_MIGRATIONS = (
    # version 1; ciphertext does not compress, so that PostgreSQL need not try
    """
    CREATE TABLE kanab_store (one integer PRIMARY KEY CHECK (one = 1), version integer NOT NULL, fingerprint bytea,
                              sealed_through integer NOT NULL, forgotten integer NOT NULL);
    INSERT INTO kanab_store VALUES (1, 0, NULL, -1, 0);
    CREATE TABLE kanab_records (id bigserial PRIMARY KEY, cohort integer NOT NULL, box bytea NOT NULL);
    ALTER TABLE kanab_records ALTER COLUMN box SET STORAGE EXTERNAL;
    CREATE INDEX kanab_records_by_cohort ON kanab_records (cohort);
    CREATE TABLE kanab_nonces (hour integer NOT NULL, nonce bytea NOT NULL, PRIMARY KEY (hour, nonce));
    CREATE TABLE kanab_sealed (number serial PRIMARY KEY, through integer NOT NULL UNIQUE, batch bytea NOT NULL);
    CREATE TABLE kanab_plans (number integer PRIMARY KEY, since integer NOT NULL, digest text NOT NULL,
                              document bytea NOT NULL);
    """,
    # version 2: the epoch, another one once something was lost; the generation, which grows as records merge
    """
    ALTER TABLE kanab_store ADD COLUMN epoch text NOT NULL DEFAULT '';
    ALTER TABLE kanab_store ADD COLUMN generation integer NOT NULL DEFAULT 0;
    """,
    # version 3: a note may be about the same cohorts as a batch
    "ALTER TABLE kanab_sealed DROP CONSTRAINT kanab_sealed_through_key;",
    # version 4: what people were told about
    "CREATE TABLE kanab_told (mark text PRIMARY KEY);",
    # version 5: records have numbers; what an earlier kanab merges would lack them
    "",
)
SCHEMA = len(_MIGRATIONS)

_APPEND = """
    WITH remembered AS (
        INSERT INTO kanab_nonces (hour, nonce)
        SELECT hour, substr(%(nonces)b, (16 * place - 15)::integer, 16)
        FROM unnest(%(hours)b::integer[]) WITH ORDINALITY AS given (hour, place)
        ON CONFLICT DO NOTHING RETURNING 1
    ), kept AS (
        INSERT INTO kanab_records (cohort, box) SELECT * FROM unnest(%(cohorts)b::integer[], %(boxes)b::bytea[])
        RETURNING id
    )
    SELECT (SELECT coalesce(max(id), 0) FROM kept) / coalesce((
        SELECT CASE WHEN sealed_through = %(sealed_through)s AND forgotten = %(forgotten)s AND epoch = %(epoch)s
                     AND generation = %(generation)s
                     AND (SELECT count(*) FROM remembered) = cardinality(%(hours)b::integer[])
                     AND (%(last_hour)s < forgotten OR
                          EXISTS (SELECT FROM kanab_nonces WHERE hour = %(last_hour)s AND nonce = %(last_nonce)b))
               THEN 1 ELSE 0 END
        FROM kanab_store), 0)
"""
"""Append a whole group if all of it is as expected, else nothing, by a division by zero that only this raises.

The last post that this collector acknowledged must be there, or the database is an older one than it was.
"""

_STATE = """
    SELECT sealed_through, forgotten, epoch, generation, fingerprint,
           %(last_hour)s < forgotten OR
           EXISTS (SELECT FROM kanab_nonces WHERE hour = %(last_hour)s AND nonce = %(last_nonce)b)
    FROM kanab_store
"""

_REMEMBER = """
    INSERT INTO kanab_nonces (hour, nonce) SELECT * FROM unnest(%b::integer[], %b::bytea[])
    ON CONFLICT DO NOTHING RETURNING nonce
"""
_SETTLE = "UPDATE kanab_store SET forgotten = forgotten"
"""Wait for the standby: a commit whose connection was cut while it waited is seen, and on the primary alone."""
_ADD_RECORD = "INSERT INTO kanab_records (cohort, box) VALUES (%s, %s) RETURNING id"
_NUMBER = "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM kanab_records_id_seq"
_FORGET = """
    DELETE FROM kanab_nonces WHERE (hour, nonce) IN
    (SELECT hour, nonce FROM kanab_nonces WHERE hour < %s ORDER BY hour, nonce LIMIT %s)
"""

_OPTIONS = {  # a server that vanished without a word is noticed in seconds, not in hours
    "autocommit": True, "application_name": "kanab", "connect_timeout": 5, "client_encoding": "utf8",
    "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 10_000,
}  # fmt: skip

FROZEN_SECONDS = 15
"""Seconds after which the database ends a transaction whose collector has stopped in the middle of it."""

_TIMEOUTS = {
    "idle_in_transaction_session_timeout": FROZEN_SECONDS,
    "transaction_timeout": 4 * FROZEN_SECONDS,  # since PostgreSQL 17; also where a pipeline was cut in two
    "statement_timeout": 4 * FROZEN_SECONDS,
}
_SHORTEN = """
    SELECT set_config(name, %(milliseconds)s::text, false) FROM pg_settings
    WHERE name = %(name)s AND (setting::bigint = 0 OR setting::bigint > %(milliseconds)s)
"""
"""Sets a limit where the database has none, or a longer one."""

WEAKER_COMMITS = ("off", "local", "remote_write")  # a crash or a failover loses what they acknowledge

_REFUSED = ("the database refuses this user", "Grant it the right to create and write tables.")
_CAUSES = {
    "53100": ("the disk of the database is full", "Free some room; clients send their messages again."),
    "55P03": ("another collector holds the store", "Try again when it has finished."),
    "25P03": (
        "the database ended a transaction in which this collector stood still",
        "Nothing of it has happened; it is tried again.",
    ),
    "42501": _REFUSED,
    "3F000": _REFUSED,  # no schema that this user may create tables in
    "42P01": ("the tables of the store are gone", "Restore the database; until then nothing is taken."),
    "25006": ("the database is read-only", "Give the address of the primary server."),
}

_LOGIN_REFUSED = ("does not exist", "authentication failed", "no pg_hba.conf entry", "is not permitted to log in")
"""What a server says to a user that it knows no password of; other words, or none, mean that it may come later."""


class _State(NamedTuple):
    """What is sealed and forgotten, the epoch and the generation.

    What is sealed falls, and the epoch changes, only with a later generation.
    """

    sealed_through: int
    forgotten: int
    epoch: str
    generation: int

    def follows(self, before: _State) -> bool:
        """Return whether a store can have come from an earlier state to this one."""
        if self.forgotten < before.forgotten or self.generation < before.generation:
            return False
        same = self.epoch == before.epoch and self.sealed_through >= before.sealed_through
        return same or self.generation > before.generation


class PostgresStore(Store):
    """A store in its own database, or in a schema of its own by the search path of its address."""

    SCHEMA, _EPOCHS, _MARKS = SCHEMA, 2, 4
    _early_tries = 3

    def __init__(self, url: str, *, wait: float = 10.0, read_only: bool = False) -> None:
        self._url = url
        self._wait = wait
        self._read_only = read_only
        self._lock = threading.RLock()
        self._connection: Connection | None = None
        self._state: _State | None = None  # as it was last seen
        self._last = {"last_hour": -1, "last_nonce": b""}  # the last post that was acknowledged
        self._fingerprint: bytes | None = None
        self.sealed_through()  # a wrong address is an error now, not at the first message

    def claim(self, fingerprint: bytes) -> None:
        """Bind the store to a key chain; raises `StoreError` if it is bound to another one."""
        super().claim(fingerprint)
        self._fingerprint = fingerprint

    def append(self, posts: Sequence[CountedPost], encrypt: Encrypt) -> Appended:
        """Remember the nonces, add up what is new by cohort, and write one record per cohort.

        Nearly always all posts are new and nothing was sealed since the last time, so that is tried first:
        it takes one round trip to the database, which is queried only if it turns out otherwise.
        """
        keys = _keys(posts)

        def work(db: Connection) -> Appended:
            state = self._state
            if state is not None and len(keys) == len(of_epoch(posts, state.epoch)) == len(posts) > 0:
                with suppress(_psycopg().errors.DivisionByZero):
                    return self._append_new(db, posts, keys, encrypt, state)
            return self._append_any(db, posts, encrypt)

        appended = self._run(work)
        taken = zip(posts, appended.outcomes, strict=True)
        known = [post for post, outcome in taken if outcome not in (PostOutcome.EPOCH, PostOutcome.EXPIRED)]
        if known:
            self._last = {"last_hour": known[-1].hour, "last_nonce": known[-1].nonce}
        return appended

    def _append_new(
        self, db: Connection, posts: Sequence[CountedPost], keys: _Keys, encrypt: Encrypt, state: _State
    ) -> Appended:
        """Append a group in which everything is new; without BEGIN, a pipeline is one transaction."""
        outcomes, sums = sort_posts(posts, [True] * len(posts), state.sealed_through, state.forgotten)
        boxes = [encrypt(cohort, counters, state.epoch, state.generation) for cohort, counters in sums.items()]
        values = {
            "hours": [hour for hour, _ in keys],
            "nonces": b"".join(nonce for _, nonce in keys),
            "cohorts": list(sums),
            "boxes": boxes,
            **state._asdict(),
            **self._last,
        }
        with db.pipeline():
            db.execute("SELECT pg_advisory_xact_lock_shared(%s)", (_LOCK,))
            kept = db.execute(_APPEND, values, binary=True)
        return Appended(outcomes, list(sums), state.sealed_through, state.epoch, _value(kept))

    def _append_any(self, db: Connection, posts: Sequence[CountedPost], encrypt: Encrypt) -> Appended:
        """Append a group after queries for what is sealed and forgotten by now, the epoch, and which nonces are new."""
        with db.pipeline(), db.transaction():
            db.execute("SELECT pg_advisory_xact_lock_shared(%s)", (_LOCK,))
            state = self._read_state(db)
            own = of_epoch(posts, state.epoch)
            keys = _keys(own)
            columns = [list(column) for column in zip(*keys, strict=True)] or [[], []]
            new = {nonce for (nonce,) in db.execute(_REMEMBER, columns, binary=True).fetchall()}
            if not new:  # what was added before is acknowledged
                db.execute(_SETTLE)
            fresh = []
            for post in own:  # the second time in one group a nonce is not new
                fresh.append(post.nonce in new)
                new.discard(post.nonce)
            outcomes, sums = sort_posts(own, fresh, state.sealed_through, state.forgotten)
            boxes = [(cohort, encrypt(cohort, more, state.epoch, state.generation)) for cohort, more in sums.items()]
            kept = [db.execute(_ADD_RECORD, box) for box in boxes]
        self._state = state
        number = max(map(_value, kept), default=0)
        return refuse_others(posts, Appended(outcomes, list(sums), state.sealed_through, state.epoch, number))

    def _read_state(self, db: Connection) -> _State:
        """Read the state of the store; raises `StoreError` if it is an older one than was seen, or another store's."""
        rows = db.execute(_STATE, self._last, binary=True).fetchall()
        if not rows:
            raise _older_error()
        *values, fingerprint, has_last = rows[0]
        state, before = _State(*values), self._state
        if self._fingerprint not in (None, fingerprint):
            raise _older_error()
        if before is not None and not (state.follows(before) and (has_last or state.epoch != before.epoch)):
            raise _older_error()
        return state

    def _moment(self, db: Connection) -> tuple[str, int]:
        state = self._read_state(db)
        return state.epoch, state.generation

    def forget_nonces(self, before: int, most: int = FORGET_AT_ONCE) -> bool:
        """Delete ``most`` nonces of earlier hours, which are refused from now on; return whether there are more."""

        def work(db: Connection) -> bool:
            if _value(db.execute("SELECT forgotten FROM kanab_store")) < before:
                with db.transaction():
                    db.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))  # no group is between looking and adding
                    db.execute("UPDATE kanab_store SET forgotten = greatest(forgotten, %s)", (before,))
            return db.execute(_FORGET, (before, most)).rowcount == most

        return self._run(work)

    def remembered(self) -> int:
        """Return how many nonces the database believes to have: it counts them from time to time."""
        query = "SELECT greatest(reltuples, 0)::bigint FROM pg_class WHERE oid = 'kanab_nonces'::regclass"
        return self._run(lambda db: int(db.execute(query).fetchone()[0]))  # type: ignore[index]

    def tidy(self) -> None:
        """Let new records take the space of old ones; the nonce table is left to autovacuum."""
        self._run(lambda db: db.execute("VACUUM (SKIP_LOCKED) kanab_records"))

    def _settle(self) -> None:
        self._run(lambda db: db.execute(_SETTLE))

    def sealed_through(self) -> int:
        """Return the last sealed period, or ``NOTHING_SEALED``."""

        def work(db: Connection) -> int:
            if self._read_only:
                return int(_value(db.execute("SELECT sealed_through FROM kanab_store")))
            state = self._read_state(db)
            if self._state is None or state.sealed_through > self._state.sealed_through:
                db.execute(_SETTLE)  # keys are erased by it
            self._state = state
            return state.sealed_through

        return self._run(work)

    def time(self) -> float | None:
        """Return the time on the clock of the database, in seconds since 1970."""
        return self._run(lambda db: float(_value(db.execute("SELECT extract(epoch FROM clock_timestamp())"))))

    def server_settings(self) -> dict[str, str]:
        """Return the settings of the server on which it depends what a commit is worth, and its version."""
        names = ["fsync", "full_page_writes", "synchronous_commit", "synchronous_standby_names", "server_version"]
        query = "SELECT name, setting FROM pg_settings WHERE name = ANY(%s)"
        return self._run(lambda db: dict(db.execute(query, (names,)).fetchall()))

    def number(self) -> int:
        """Return a number that grows with every commit and never falls, unless an older store is put back."""
        return self._run(lambda db: int(_value(db.execute(_NUMBER))))

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._drop()
            self._url = ""

    def _read(self, work: Callable[[Connection], _T]) -> _T:
        return self._run(work)

    def _change(self, work: Callable[[Connection], _T], *, alone: bool = True) -> _T:
        def transaction(db: Connection) -> _T:
            with db.transaction():
                if alone:
                    db.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
                return work(db)

        return self._run(transaction)

    def _rows(self, db: Connection, statement: str, **values: object) -> list[Any]:
        cursor = db.execute(_translated(statement), values, binary=True)
        return [] if cursor.description is None else cursor.fetchall()

    def _version(self, db: Connection) -> int:
        return self._value(db, "SELECT version FROM store") if self._read_only else SCHEMA

    def _run(self, work: Callable[[Connection], _T]) -> _T:
        """Do some work on an open connection, and once again if the connection turns out to be lost."""
        with self._lock:
            for is_last in (False, True):
                try:
                    return work(self._open())
                except _psycopg().Error as problem:
                    if not self._may_retry(problem) or is_last:
                        raise self._explained(problem) from None
            raise AssertionError("the last time it is explained")

    def _explained(self, problem: Any) -> StoreError:
        if self._read_only and problem.sqlstate in ("42703", "42P01"):  # a column or table of later
            return older_schema_error()
        if self._read_only and problem.sqlstate == "42501":
            return StoreError(_REFUSED[0], "Grant it the right to read the tables kanab_….")
        return _explained(problem)

    def _may_retry(self, problem: Any) -> bool:
        """Return whether the connection was lost (and drop it), or two transactions were in each other's way."""
        lost = self._connection is not None and self._connection.closed
        if lost:
            self._drop()
        return lost or problem.sqlstate in ("40001", "40P01")

    def _open(self) -> Connection:
        if not self._url:
            raise StoreError("the store is closed", "Open it again.")
        if self._connection is None or self._connection.closed:
            self._drop()
            if self._read_only:
                self._connection = _connected_to_read(self._url, self._wait)
            else:
                self._connection = _connected(self._url, self._wait, new=self._state is None)
        return self._connection

    def _drop(self) -> None:
        if self._connection is not None:
            with suppress(Exception):
                self._connection.close()
        self._connection = None


def _keys(posts: Sequence[CountedPost]) -> _Keys:
    """Return hours and nonces in one order, so that no two groups wait in a circle."""
    return sorted({(post.hour, post.nonce) for post in posts})


def _connected(url: str, wait: float, *, new: bool) -> Connection:
    """Open a connection on which a commit is durable, and bring the tables up to date; make them in a new store."""
    with _connecting(url, wait) as db:
        db.execute("SET default_transaction_isolation TO 'read committed'")
        if _value(db.execute("SHOW synchronous_commit")) in WEAKER_COMMITS:
            db.execute("SET synchronous_commit TO on")
        with db.transaction():
            db.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK + 1,))
            _migrate(db, new=new)
        for name, seconds in _TIMEOUTS.items():
            db.execute(_SHORTEN, {"name": name, "milliseconds": 1000 * seconds})
    return db


def _connected_to_read(url: str, wait: float) -> Connection:
    """Open a connection that writes nothing, to tables that are there."""
    with _connecting(url, wait) as db:
        db.execute("SET default_transaction_read_only TO on")
        if not _value(db.execute("SELECT to_regclass('kanab_store') IS NOT NULL")):
            raise StoreError(
                "there is no store in this database for this user",
                "Check the address, and that the user may use the schema of the tables kanab_….",
            )
        if _value(db.execute("SELECT version FROM kanab_store")) > SCHEMA:
            raise newer_schema_error()
    return db


@contextmanager
def _connecting(url: str, wait: float) -> Iterator[Connection]:
    """Open a connection, and close it if what follows fails."""
    db: Connection = _psycopg().connect(url, **_OPTIONS)
    try:
        db.execute("SELECT set_config('lock_timeout', %s, false)", (f"{int(wait * 1000)}ms",))
        yield db
    except BaseException:
        db.close()
        raise


def _migrate(db: Connection, *, new: bool) -> None:
    """Bring the tables to this program's version, all steps or none."""
    exists = _value(db.execute("SELECT to_regclass('kanab_store') IS NOT NULL"))
    if not exists and not new:
        raise StoreError(*_CAUSES["42P01"])
    version = _value(db.execute("SELECT version FROM kanab_store")) if exists else 0
    if version > SCHEMA:
        raise newer_schema_error()
    for migration in _MIGRATIONS[version:]:
        db.execute(migration)
    if version < SCHEMA:
        db.execute("UPDATE kanab_store SET version = %s", (SCHEMA,))


@lru_cache(maxsize=64)
def _translated(statement: str) -> str:
    """Return a statement of `Store` with the names of tables and of values that it has here."""
    statement = re.sub(r"\b(FROM|INTO|UPDATE) (\w+)", r"\1 kanab_\2", statement)
    return re.sub(r":(\w+)", r"%(\1)s", statement)


def _value(cursor: psycopg.Cursor[Any]) -> Any:
    row = cursor.fetchone()
    return None if row is None else row[0]


def _psycopg() -> Any:
    try:
        import psycopg  # noqa: PLC0415 - only collectors on PostgreSQL need it
    except ImportError:
        raise MissingExtraError("keeping a store in PostgreSQL", "postgres") from None
    return psycopg


def _older_error() -> StoreError:
    return StoreError(
        "the database lacks what was acknowledged: it is an older one, or another store's",
        "Give the right one back; or stop the collectors, and restore (kanab restore). Until then nothing is taken.",
    )


def _explained(problem: Any) -> StoreError:
    """Turn PostgreSQL's errors into facts and remedies, without its texts, which may repeat values."""
    state = problem.sqlstate
    if state is None:
        return _unconnected(problem)
    if state in _CAUSES:
        return StoreError(*_CAUSES[state])
    if state.startswith(("08", "57P")) or state == "53300":  # shut down, starting, cut off; too many connections
        return StoreAwayError("the database takes no connection now", "Check that it is running.")
    return StoreError(f"the database failed (SQLSTATE {state})", "Look into its log.")


def _unconnected(problem: Any) -> StoreError:
    """Return why there is no connection; libpq has words for it and no code, and they may hold the password."""
    if isinstance(problem, _psycopg().ProgrammingError):
        return StoreError("that is not the address of a database", "Write postgresql://host/database.")
    tried, words = problem.pgconn, str(problem)
    if (tried and (tried.used_password or tried.needs_password)) or any(word in words for word in _LOGIN_REFUSED):
        return StoreError(
            "the database does not let this user in, or there is no such user or database",
            "Check user, password and name in the address.",
        )
    return StoreAwayError("the database cannot be reached", "Check its address and that it is running.")
