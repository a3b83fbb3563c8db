"""Cells that leave through openings, and those that come in from a periodic flow before an inlet."""
