"""What results say, as tables, charts and a page."""
