"""Tell people what a collector has sealed: messages to Slack, to a webhook or by mail, after the commit."""
