"""The flows and cells that checks compare with published numbers and exact solutions."""
