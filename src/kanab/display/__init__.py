"""What a readout looks like: text, Markdown, HTML, charts. Works from plain data, computes nothing new."""
