"""A head that is recognised at a glance means what a real parser reads in it; whatever is unusual is not recognised."""

from dataclasses import dataclass, field

import httptools
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kanab.collector.http.access import PostingPage
from kanab.collector.http.connections import plain_head
from kanab.collector.protocol.limits import MOST_HEAD_BYTES, MOST_POST_BYTES

BODY = b"kanab/1 0\nwhat"


def post(*headers: bytes, body: bytes = BODY, first: bytes = b"POST /v1/t HTTP/1.1") -> bytes:
    return b"\r\n".join([first, *headers, b"", b""]) + body


LENGTH = b"Content-Length: %d" % len(BODY)


@dataclass
class Parsed:
    """What a real parser makes of some bytes."""

    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    url: bytes = b""
    body: bytes = b""
    whole: int = 0

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.whole += 1


def test_a_browsers_post_is_recognised() -> None:
    data = post(
        b"Host: stats.shop.example",
        b"Connection: keep-alive",
        LENGTH,
        b'sec-ch-ua: "Chromium";v="130", "Not?A_Brand";v="99"',
        b"Content-Type: text/plain;charset=UTF-8",
        b"User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36",
        b"Accept: */*",
        b"Origin: https://Shop.example",
        b"Sec-Fetch-Site: same-site",
        b"Accept-Language: de,en;q=0.9",
    )
    head = plain_head(data)
    assert head is not None
    assert (head.kind, head.page) == (
        "text/plain;charset=UTF-8",
        PostingPage(b"https://Shop.example", b"same-site", b"stats.shop.example"),
    )
    assert data[head.start : head.end] == BODY
    assert head.end == len(data)


def test_a_body_that_is_not_there_yet_or_followed_by_more_is_told_by_its_end() -> None:
    whole = post(LENGTH)
    for data in (whole[:-3], whole, whole + b"GET"):
        head = plain_head(data)
        assert head is not None
        assert head.end == len(whole)


@pytest.mark.parametrize(
    "data",
    [
        post(),  # without a header
        post(b"Host: here"),  # without a length
        post(LENGTH)[: -len(BODY) - 2],  # the head is not whole
        post(LENGTH, LENGTH),
        post(LENGTH, b"content-length: 3"),
        post(b"Content-Length : 3"),
        post(b" Content-Length: 3"),
        post(LENGTH, b" folded: line"),
        post(LENGTH, b"\tfolded: line"),
        post(LENGTH, b"no colon"),
        post(LENGTH, b": nameless"),
        post(LENGTH, b"Na me: x"),
        post(LENGTH, b"X: a\rb"),
        post(LENGTH, b"X: a\nContent-Length: 3"),
        post(LENGTH, b"X: a\x00b"),
        post(LENGTH, b"X: a\x7fb"),
        post(LENGTH).replace(b"\r\n", b"\n"),
        post(b"Content-Length: +3"),
        post(b"Content-Length: -3"),
        post(b"Content-Length: 0x3"),
        post(b"Content-Length: 3, 3"),
        post(b"Content-Length: \xb2"),
        post(b"Content-Length: 1_0"),
        post(b"Content-Length:"),
        post(b"Content-Length: %d" % (MOST_POST_BYTES + 1)),
        post(b"Content-Length: 000000014"),
        post(LENGTH, b"Transfer-Encoding: chunked"),
        post(LENGTH, b"TRANSFER-ENCODING: identity"),
        post(LENGTH, b"Expect: 100-continue"),
        post(LENGTH, b"Upgrade: h2c"),
        post(LENGTH, b"Connection: close"),
        post(LENGTH, b"Connection: keep-alive, close"),
        post(LENGTH, b"Connection: keep-alive", b"Connection: close"),
        post(LENGTH, b"Origin: a", b"Origin: b"),
        post(LENGTH, b"Content-Type: a", b"Content-Type: b"),
        post(LENGTH, b"X: " + b"x" * MOST_HEAD_BYTES),
        post(LENGTH, first=b"POST /v1/t HTTP/1.0"),
        post(LENGTH, first=b"POST /v1/t?x HTTP/1.1"),
        post(LENGTH, first=b"POST /v1/tt HTTP/1.1"),
        post(LENGTH, first=b"PUT /v1/t HTTP/1.1"),
        post(LENGTH, first=b"POST  /v1/t HTTP/1.1"),
        b"\r\n" + post(LENGTH),
        b"",
    ],
)
def test_what_is_unusual_is_left_to_the_parser(data: bytes) -> None:
    assert plain_head(data) is None


_NAMES = b"Content-Length content-type Origin Connection Transfer-Encoding Expect Host Sec-Fetch-Site X-Y".split()
_PIECES = st.sampled_from(
    [*b"\r\n | \r | \n | : | \t | \x00 | keep-alive | close | chunked | \xff | ,".split(b" | "), b" "]
)
_VALUES = st.one_of(
    st.sampled_from([*b"14 0 3 014 text/plain keep-alive Keep-Alive close chunked".split(), b"", b" x "]),
    st.lists(st.one_of(_PIECES, st.binary(max_size=3)), max_size=3).map(b"".join),
)
_GAPS = st.sampled_from([b" ", b"", b"\t", b"  "])
_LINES = st.one_of(
    st.builds(lambda name, gap, value: name + b":" + gap + value, st.sampled_from(_NAMES), _GAPS, _VALUES),
    st.lists(st.one_of(_PIECES, st.sampled_from(_NAMES)), max_size=5).map(b"".join),
)


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(st.lists(_LINES, max_size=4), st.booleans(), st.integers(0, 2))
@example([b"Content-Length: 14"], False, 0)
@example([b"Content-Length: 0"], False, 0)
def test_a_real_parser_reads_the_same(lines: list[bytes], lengthy: bool, more: int) -> None:
    data = post(*([LENGTH] if lengthy else []), *lines, body=BODY + b"x" * more)
    head = plain_head(data)
    if head is None or head.end > len(data):
        return
    parsed = Parsed()
    parser = httptools.HttpRequestParser(parsed)
    parser.feed_data(data[: head.end])
    assert (parser.get_method(), parser.get_http_version(), parsed.url) == (b"POST", "1.1", b"/v1/t")
    assert parser.should_keep_alive()
    assert not parser.should_upgrade()
    assert parsed.whole == 1
    assert parsed.body == data[head.start : head.end]
    told = dict(parsed.headers)
    assert head.page == PostingPage(*(told.get(name) for name in (b"origin", b"sec-fetch-site", b"host")))
    assert head.kind == (told[b"content-type"].decode("latin-1") if b"content-type" in told else None)
    assert not {b"transfer-encoding", b"expect", b"upgrade"} & told.keys()
