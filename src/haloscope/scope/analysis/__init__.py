"""`haloscope analyze`: metrics of a measurement, efficiencies, scores, predictions.

Imports trace, replay, diagnosis and report.
"""
