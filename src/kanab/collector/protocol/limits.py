"""The limits that senders and collectors must respect: sizes, rates and times, each with its one home here.

The life of a nonce belongs to the plan (``nonce_life``), and so does the window of a cohort; how many classes a
table may have is ``kanab.plan.model.MOST_CLASSES``.
"""

# ── a post ─────────────────────────────────────────────────────────────────────────────────────

MOST_POST_BYTES = 16_384
"""Bytes of the body of a post; a proxy in front must let as many through."""

MOST_POST_LINES = 100
"""Messages in a post."""

NONCE_BYTES = 16
"""Bytes of a nonce: 4 of hours since 1970, the others at random."""

HOURS_AHEAD = 1
"""Hours that the clock of a client may be fast."""

GRACE_HOURS = 1
"""Hours for which a store remembers nonces beyond their life, because clocks of collectors differ."""

MOST_PAIRS = 20
"""Pairs of experiments that a client reports, drawn once at random."""

# ── a connection ───────────────────────────────────────────────────────────────────────────────

MOST_HEAD_BYTES = 16_384
"""Bytes of address and headers of a request: no browser sends more."""

MOST_REQUEST_BYTES = 262_144
"""Bytes of a whole request on the wire: a body in chunks of one byte takes six times its length."""

REQUEST_SECONDS = 10.0
"""Seconds for a whole request to arrive."""

IDLE_SECONDS = 30
"""Seconds that a connection may stay open between two requests."""

LAST_SECONDS = 1.0
"""Seconds for which an idle connection waits for a request under way while the collector stops: that is answered, and
told to close."""

# ── many posts ─────────────────────────────────────────────────────────────────────────────────

POSTS_PER_SECOND = 20.0
"""Posts per second from one address, in the long run."""

BURST_POSTS = 200.0
"""Posts at once from one address: a whole office behind one router starts its day."""

POSTS_PER_DAY = 200_000
"""Posts from one address in a day, however they are spread: 20 each of the 10,000 people behind one router. For each a
nonce is remembered, which takes 65 bytes with its row, so that one address fills at most 13 MB a day."""

MOST_CONNECTIONS = 1_000
"""Open connections of one address, and posts of one that arrive through a proxy at once: a whole office that posts as
fast as it may has 600 connections idle."""

MOST_WAITING_POSTS = 20_000
"""Posts that may wait to be written; more are refused, and sent again later."""

RETRY_AFTER_SECONDS = 2
"""Seconds after which a sender should try again when the collector cannot write."""
