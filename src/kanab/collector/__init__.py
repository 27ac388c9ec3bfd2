"""The server that adds clients' messages to class counters and seals them into releases."""
