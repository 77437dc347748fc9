"""The web explorer: server, requests and pages."""
