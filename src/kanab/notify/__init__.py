"""Tell people what a collector has sealed: messages to Slack, to a webhook or by mail, at least once, after the commit.

Others import ``notifier.Notifier`` and ``channels`` (``Slack``, ``Webhook``, ``Mail``).
"""
