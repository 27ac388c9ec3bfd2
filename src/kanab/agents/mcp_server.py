"""Speaks the Model Context Protocol: over standard input and output, or over HTTP for readers who may read.

Only messages of the protocol go to the standard output; what goes wrong is said on the standard error stream, by kind
and place, without what was asked or answered.
"""

import io
import json
import logging
import sys
from typing import Any
from urllib.parse import urlsplit

import anyio
from anyio.abc import ObjectSendStream
from mcp.server import Server
from mcp.server.stdio import stdio_server
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.message import SessionMessage
from mcp_types import (
    PARSE_ERROR,
    CallToolResult,
    ErrorData,
    JSONRPCError,
    ListToolsResult,
    TextContent,
    Tool,
    ToolAnnotations,
    jsonrpc_message_adapter,
)

from kanab import __version__
from kanab.agents.answers import INSTRUCTIONS, TOOLS, Answers, ReleaseTool, answer_call
from kanab.collector.http.access import Access, Refusal, host_name
from kanab.dashboard.access_guard import App, Receive, Scope, Send, refused_response
from kanab.dashboard.background import NotYetError
from kanab.errors import KanabError

PATH = "/mcp"
"""Where the protocol is spoken over HTTP."""

LARGEST_BODY = 64 * 1024
"""Bytes of one HTTP request; the longest question has a quarter of that."""

LONGEST_LINE = 4 * 1024 * 1024
"""Letters of one line; of a shorter one the answer can say which question was too long, and nobody waits for it."""

AT_ONCE = 4
"""So many questions are answered at a time."""

NO_MESSAGE_LINE = (
    f"this line is not a message of the protocol, or has more than {LONGEST_LINE} letters. "
    "Send one JSON-RPC message per line."
)
NOT_YET = "this is being computed. Ask again in a few seconds."
MISTAKE = "this answer could not be computed. Tell the operator of this server."

_REMEDIES = {
    401: "Send it as Authorization: Bearer …: it is KANAB_TOKEN of the server.",
    403: "Set KANAB_TOKEN for other machines; name the server by --allow-host, or as 127.0.0.1.",
}
FOREIGN = Refusal(403, "a web page of another address may not read this", "Use a program, not a page.")
ELSEWHERE = Refusal(404, "there is nothing here", f"The protocol is spoken at {PATH}.")
ONLY_POSTS = Refusal(405, "questions are posted", f"POST a message of the protocol to {PATH}.")
TOO_LARGE = Refusal(413, f"a request has at most {LARGEST_BODY} bytes", "Ask about fewer experiments at a time.")
NO_MESSAGE = Refusal(400, "this is not a message of the protocol", "POST one JSON-RPC message.")

_log = logging.getLogger(__name__)


def protocol_server(answers: Answers) -> Server[Any]:
    """Return the server of the protocol: its tools, and nothing else; no resources, no prompts, nothing written."""
    at_once = anyio.CapacityLimiter(AT_ONCE)

    async def list_tools(_context: Any, _params: Any) -> ListToolsResult:
        return ListToolsResult(tools=[_described(tool) for tool in TOOLS])

    async def call_tool(_context: Any, params: Any) -> CallToolResult:
        try:
            answer = await anyio.to_thread.run_sync(
                answer_call, answers, params.name, params.arguments, limiter=at_once, abandon_on_cancel=True
            )
        except KanabError as refused:
            return _refused(str(refused))
        except NotYetError:
            return _refused(NOT_YET)
        except Exception:  # a mistake of ours must not end the process, nor tell what it was about
            _log.exception("a mistake")
            return _refused(MISTAKE)
        compact = json.dumps(answer.data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        return CallToolResult(content=[_text(answer.text), _text(compact)], structured_content=answer.data)

    server: Server[Any] = Server(
        "kanab", version=__version__, title="Kanab", instructions=INSTRUCTIONS, on_list_tools=list_tools,
        on_call_tool=call_tool,
    )  # fmt: skip
    server.middleware.clear()  # telemetry would carry what was asked to wherever an exporter sends it
    return server


def _described(tool: ReleaseTool) -> Tool:
    hints = ToolAnnotations(
        title=tool.title, read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
    )
    return Tool(name=tool.name, title=tool.title, description=tool.says, input_schema=tool.schema, annotations=hints)


def _text(text: str) -> TextContent:
    return TextContent(type="text", text=text)


def _refused(says: str) -> CallToolResult:
    return CallToolResult(content=[_text(says)], is_error=True)


# ── standard input and output ──────────────────────────────────────────────────────────────────


def serve_stdio(answers: Answers) -> None:
    """Answer one client until it closes its end."""
    anyio.run(_serve_stdio, answers)


async def _serve_stdio(answers: Answers) -> None:
    server = protocol_server(answers)
    lines = anyio.wrap_file(BoundedLines(sys.stdin.buffer, encoding="utf-8", errors="replace"))
    async with stdio_server(lines) as (incoming, outgoing), anyio.create_task_group() as tasks:
        readable, messages = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        tasks.start_soon(_answer_garbage, incoming, readable, outgoing)
        await server.run(messages, outgoing, server.create_initialization_options())


class BoundedLines(io.TextIOWrapper):
    """Lines of a stream; what is longer than a message may be is read to its end, and is no message."""

    def readline(self, _size: int = -1, /) -> str:  # type: ignore[override]
        """Return the next line; an empty one for a line that is too long, nothing at the end."""
        line = super().readline(LONGEST_LINE + 1)
        if len(line) <= LONGEST_LINE:
            return line
        while line and not line.endswith("\n"):
            line = super().readline(LONGEST_LINE)
        return "\n"


async def _answer_garbage(incoming: Any, readable: ObjectSendStream[SessionMessage | Exception], outgoing: Any) -> None:
    """Pass messages on; say of a line that is none that it is none, where the library would drop it in silence."""
    async with readable:
        async for item in incoming:
            if isinstance(item, Exception):
                error = ErrorData(code=PARSE_ERROR, message=NO_MESSAGE_LINE)
                await outgoing.send(SessionMessage(JSONRPCError(jsonrpc="2.0", id=None, error=error)))
            else:
                await readable.send(item)


# ── HTTP ───────────────────────────────────────────────────────────────────────────────────────


def http_app(answers: Answers, access: Access) -> App:
    """Return the protocol as an ASGI application; ``access`` says who may read."""
    application = protocol_server(answers).streamable_http_app(
        streamable_http_path=PATH, json_response=True, stateless_http=True, max_request_body_size=LARGEST_BODY,
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),  # `access` does that
    )  # fmt: skip

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await application(scope, receive, send)
            return
        refusal = _refusal(scope, access)
        body = await _whole_body(receive) if refusal is None else b""
        refusal = refusal or _unreadable(body)
        if refusal is None:
            await application(scope, _again(body, receive), send)
        else:
            response = refused_response(refusal)
            if refusal is ONLY_POSTS:
                response.headers["allow"] = "POST"
            await response(scope, receive, send)

    return guarded


async def _whole_body(receive: Receive) -> bytes:
    """Return the body of a request, or a little more than may be sent of one that is too large."""
    body, more = b"", True
    while more and len(body) <= LARGEST_BODY:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return body


def _again(body: bytes, receive: Receive) -> Receive:
    """Return what hands over a body that was read already, and then whatever comes."""
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def received() -> Any:
        return messages.pop() if messages else await receive()

    return received


def _unreadable(body: bytes) -> Refusal | None:
    if len(body) > LARGEST_BODY:
        return TOO_LARGE
    try:
        jsonrpc_message_adapter.validate_json(body, by_name=False)
    except ValueError:
        return NO_MESSAGE
    return None


def _refusal(scope: Scope, access: Access) -> Refusal | None:
    """Return why a request may not read: no token, another name, a web page of another address, or no question."""
    if (refusal := access.refused(scope)) is not None:
        return refusal._replace(remedy=_REMEDIES.get(refusal.status, refusal.remedy))
    if scope["path"] != PATH:
        return ELSEWHERE
    if scope["method"] != "POST":  # a stream of events would stay open for ever, and never bring one
        return ONLY_POSTS
    headers = dict(scope["headers"])
    origin = headers.get(b"origin")
    if origin is None:
        return None
    asked = host_name(headers.get(b"host", b"").decode("latin-1"))
    try:
        page = urlsplit(origin.decode("latin-1")).hostname
    except ValueError:
        page = None
    return None if page == asked else FOREIGN
