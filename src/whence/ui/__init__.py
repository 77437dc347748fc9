"""What people look at: pages made from explanations."""
