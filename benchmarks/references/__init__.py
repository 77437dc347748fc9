"""Relevance maps computed by other libraries, against which whence's own are tested."""
