import json

import pytest

from kanab.collector.protocol.limits import MOST_POST_BYTES, MOST_POST_LINES
from kanab.collector.protocol.post import Post, read_post
from kanab.errors import MessageError

NONCE = "00079b70000102030405060708090a0b"
FIRST = f"kanab/1 {NONCE}\n"
LINE = {"linkage": ["banner"], "levels": ["on"]}


def text(*lines: str) -> Post:
    return read_post((FIRST + "\n".join(lines)).encode())


def in_json(*messages: object, **rest: object) -> Post:
    body = {"kanab": 1, "nonce": NONCE, "messages": messages} | rest
    return read_post(json.dumps(body).encode(), "application/json")


@pytest.mark.parametrize(
    "message",
    [
        LINE | {"metric": "y"},
        LINE | {"new": 1},
        LINE | {"old": 1},
        LINE | {"metric": "y", "old": 1},
        LINE | {"metric": "y", "ratio": ["y", "z"], "new": 1},
    ],
)
def test_half_a_json_message_is_refused(message: object) -> None:
    with pytest.raises(MessageError, match=r"a message cannot be read - at \$\.messages\[1\]") as caught:
        in_json(LINE, message)
    assert caught.value.reason == "line"


@pytest.mark.parametrize(
    "body",
    [
        b"", b"[]", b"null", b"\xff", b'{"kanab": 1}', b"[" * 9000, b'{"kanab":' + b"[" * 9000,
        json.dumps({"kanab": 1, "nonce": NONCE, "messages": [LINE | {"time": 1}]}).encode(),
        json.dumps({"kanab": 1, "nonce": NONCE, "messages": [LINE | {"levels": [[1]]}]}).encode(),
        json.dumps({"kanab": 1, "nonce": NONCE, "messages": [LINE | {"metric": "y", "new": "4"}]}).encode(),
        json.dumps({"kanab": 1, "nonce": NONCE, "messages": [LINE | {"metric": "y", "new": [1]}]}).encode(),
        json.dumps({"kanab": 1, "nonce": NONCE, "messages": [LINE | {"metric": "y", "new": True}]}).encode(),
        json.dumps({"kanab": 1, "nonce": NONCE, "messages": [LINE | {"metric": "y", "new": float("nan")}]}).encode(),
        json.dumps({"kanab": 1, "nonce": NONCE, "messages": [LINE | {"new": 0}]})[:-4].encode() + b"1e999}]}",
        json.dumps({"kanab": 1, "nonce": NONCE, "messages": [LINE | {"levels": ["\ud800"]}]}).encode(),
        json.dumps({"kanab": 2, "nonce": NONCE, "messages": [LINE]}).encode(),
        json.dumps({"kanab": True, "nonce": NONCE, "messages": [LINE]}).encode(),
    ],
)  # fmt: skip
def test_other_json_is_refused(body: bytes) -> None:
    with pytest.raises(MessageError) as caught:
        read_post(body, "application/json")
    assert (caught.value.reason, caught.value.status) == ("format", 400)


def test_numbers_beyond_64_bits_in_json_are_no_trouble() -> None:
    post = in_json(LINE | {"metric": "y", "old": -(10**30), "new": 10**300}, LINE | {"levels": [10**30]})
    assert post.lines[0] == ("banner:on:y", -1e30, 1e300)
    assert post.lines[1][0].startswith("banner:1")


def test_a_post_has_at_most_a_hundred_lines_and_sixteen_kilobytes() -> None:
    assert len(text(*["a:B"] * MOST_POST_LINES).lines) == 100
    assert len(in_json(*[LINE] * MOST_POST_LINES).lines) == 100
    for post in (lambda: text(*["a:B"] * 101), lambda: in_json(*[LINE] * 101), lambda: text("a" * MOST_POST_BYTES)):
        with pytest.raises(MessageError) as caught:
            post()
        assert (caught.value.reason, caught.value.status) == ("size", 413)
    assert len(text("a" * (MOST_POST_BYTES - len(FIRST))).lines) == 1


@pytest.mark.parametrize(
    "totals",
    [
        "0>inf", "nan>1", "0>1_0", "0> 1", "0>", ">", "0>1>2", "0/1>", "0/1/2>1/2/3", "0/x>1/2", "0>١", "0>1e999",
        "0>0x1", "0>--1", "0>1,5", "0>" + "9" * 400,
    ],
)  # fmt: skip
def test_a_total_is_a_finite_number_in_digits(totals: str) -> None:
    with pytest.raises(MessageError, match="a total is not a finite number - at line 3") as caught:
        text("a:B", f"a:B:y:{totals}")
    assert caught.value.reason == "number"
    assert caught.value.__context__ is None


@pytest.mark.parametrize("kind", ["application/json", "Application/JSON; charset=utf-8"])
def test_json_goes_by_its_content_type(kind: str) -> None:
    body = json.dumps({"kanab": 1, "nonce": NONCE, "messages": [LINE]}).encode()
    assert read_post(body, kind).json
    with pytest.raises(MessageError, match="must begin with kanab/1"):
        read_post(body, "text/plain")
    with pytest.raises(MessageError, match="neither text nor JSON"):
        read_post(body, "multipart/form-data")


def test_the_epoch_is_a_third_word_and_none_in_the_first_epoch() -> None:
    assert text("a:B").epoch == in_json(LINE).epoch == ""
    assert read_post(f"kanab/1 {NONCE} 5f3a9c01\na:B".encode()).epoch == "5f3a9c01"
    assert in_json(LINE, epoch="5f3a9c01").epoch == "5f3a9c01"


@pytest.mark.parametrize(
    "epoch", [" ", " 5f3a9c0", " 5F3A9C01", " 5f3a9c01 ", "  5f3a9c01", " zzzzzzzz", " 5f3a9c01\t"]
)
def test_an_epoch_that_is_none_is_refused(epoch: str) -> None:
    with pytest.raises(MessageError, match="an epoch is not 8 hex digits - at line 1"):
        read_post(f"kanab/1 {NONCE}{epoch}\na:B".encode())
    with pytest.raises(MessageError, match="an epoch is not 8 hex digits"):
        in_json(LINE, epoch=epoch)
