"""What Kanab promises, in words that a privacy officer can repeat: the two promises, and what k does not cover."""

PROMISES = (
    (
        "k",
        "readers whom you would trust with a table: colleagues, partners under contract",
        "Every published number is about at least k people, and so is every sum or difference of published sums of one "
        "metric, over all tables and releases of a ledger. No amount rests on fewer than 3 people, or mostly on one.",
        "merged levels",
    ),
    (
        "ε",
        "everybody else",
        "Whoever knows everybody else learns next to nothing about you (differential privacy).",
        "noise in every number",
    ),
)
"""Each promise: its name, for whom it is, what it says, and what it costs."""

RULES = (
    (
        "k per class",
        "Every class holds nobody or at least k people, and so do those who have, and lack, a value. Sparse levels are "
        "merged, one map for all arms, never chosen by the outcome.",
    ),
    (
        "combinations of class sums",
        "No combination of published sums of one metric, over all tables, products and earlier releases of the ledger, "
        "rests on fewer than k people. How many it rests on is the effective k of class sums.",
    ),
    (
        "contributors and dominance",
        "No combination of sums of an amount rests on fewer than 3 people who have any, or mostly on one or two. 0/1 "
        "metrics and whole numbers of up to 20 steps are exempt, unless they are marked sensitive.",
    ),
    (
        "sensitive values",
        "Of a metric that is marked sensitive, in no class everybody has the same value, and few numbers are published "
        "about few people.",
    ),
)
"""The rules behind promise k: each with its name."""

NOT_COVERED = (
    (
        "arithmetic with values",
        "Whole numbers, cents, or prices that end in .99 can fit in one way only: a sum of 29.97 is three at 9.99.",
    ),
    (
        "classes where everybody is alike",
        "If nobody of a class of 40 bought anything, you know that of each of the 40.",
    ),
    (
        "which levels were merged",
        "A country that is merged for revenue may be one with fewer than 3 buyers, or with one very large buyer.",
    ),
    (
        "the other direction of products",
        "Σ sessions · revenue is checked for a secret revenue and known sessions, not the other way round; nor "
        "for which buyers: an arm needs 3 of them for every sum about it, but a number that only one of them has tells "
        "what that one paid.",
    ),
    (
        "relations between metrics that were not found",
        "A relation that holds for most people is found by a fit, and checked; one that holds in one country only"
        " (its own VAT) is not.",
    ),
    (
        "several experiments of a collector",
        "k holds within an experiment: whoever subtracts two experiments that nearly the same people took part in"
        " may see what the few differing people did.",
    ),
    (
        "one large amount, where a collector counts",
        "It keeps no largest value: of 500 spent in an arm 480 may be one person's. Tight bounds limit that.",
    ),
    (
        "how skewed an amount is",
        "A release says a class of skewness per amount, and a class of the share of people off its commonest value;"
        " no rule asks what these tell beside the sums.",
    ),
    (
        "bins beside sums",
        "Five people in the highest bin, and a sum, tell how much they have at least.",
    ),
    (
        "readers who know many of the others",
        "k = 10 against somebody who knows 4 of the people is k = 6.",
    ),
    (
        "forged people",
        "A sender who invents k − 1 people of a class sees the one who is real.",
    ),
    (
        "two ledgers",
        "Nobody compares them; --no-ledger compares nothing, and says so in the file.",
    ),
)
"""What k does not cover: a title, and an example. ε covers all of it."""

WITHIN_AN_EXPERIMENT = (
    "Each experiment by itself shows nobody among fewer than k. Whoever adds and subtracts several experiments that "
    "nearly the same people took part in may see what the few differing people did; a sender who forges k − 1 visitors "
    "of a class sees the k-th. ε prevents both."
)
"""What k means where a collector counts."""

NOT_IN_A_FILE = "contributors and dominance need rows, and the receipt does not say that they were checked"
"""What an audit cannot say of a file of before."""

NOT_IN_A_BATCH = "a collector keeps no largest value: fewer than 3 contributors are merged, dominance is not evaluated"
"""What an audit cannot say of a collector's batch."""

NOT_COUNTED = "how many people have some of each amount was not counted, and a collector keeps no largest value"
"""What an audit cannot say of a batch with people whom an earlier version counted."""
