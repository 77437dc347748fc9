"""Results as tables, charts and a page."""
