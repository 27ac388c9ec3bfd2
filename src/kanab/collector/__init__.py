"""The collector: a server that adds clients' messages to class counters and seals them into releases.

Others import ``http.app.Collector``, ``http.service.Service`` and ``http.server``; the ``stores``; ``keys.keyring``;
``sealing``; and, for clients, the ``protocol``.
"""
