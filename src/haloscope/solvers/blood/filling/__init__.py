"""Fills a space with rigid cells as densely as asked."""
