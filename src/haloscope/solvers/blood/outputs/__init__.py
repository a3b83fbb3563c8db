"""What is written and worked out of a run."""
