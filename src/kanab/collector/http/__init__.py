"""The collector's HTTP side: the application, the running service, and the server with its fast path.

Others import ``app.Collector``, ``service.Service`` and ``server.serve``.
"""
