"""What pages are made of: a policy, a style, pictures."""
