"""The work of `haloscope analyze`: metrics, results, efficiencies, scores, predictions.

Imported by commands and all of scope but record; imports trace, replay, diagnosis, maps, report and
export.
"""
