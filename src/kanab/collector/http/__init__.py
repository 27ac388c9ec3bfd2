"""HTTP of the collector: ``app.Collector``, the running ``service.Service``, ``server.serve`` with its fast path."""
