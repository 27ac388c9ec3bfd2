"""A client for servers: the verbs of the browser module, with the state in a cookie or held by the caller."""

from kanab.client.client import Client, Person
from kanab.client.cookies import Cookies, read_keys
from kanab.client.delivery import PostAnswer
from kanab.client.shared_states import SharedStates, SqliteStates
from kanab.client.transport import Http, Transport
from kanab.collector.protocol.nonces import mint_vouchers

__all__ = [
    "Client",
    "Cookies",
    "Http",
    "Person",
    "PostAnswer",
    "SharedStates",
    "SqliteStates",
    "Transport",
    "mint_vouchers",
    "read_keys",
]
