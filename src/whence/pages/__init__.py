"""Building blocks of pages: policy, style, pictures."""
