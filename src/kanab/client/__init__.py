"""A client for servers: the verbs of the browser module, with the state in a cookie or held by the caller."""

from kanab.client.client import Client
from kanab.client.cookies import Cookies, read_keys
from kanab.client.delivery import Answer
from kanab.client.person import Person
from kanab.client.transport import Http, Transport

__all__ = ["Answer", "Client", "Cookies", "Http", "Person", "Transport", "read_keys"]
