"""A demonstration: a shop, its visitors, a collector and a dashboard, over the real HTTP routes."""
