"""The measurement system: record, trace, replay, analysis, diagnosis, report, explorer, export.

Stands beside the solvers and imports nothing of them; only commands import it. The rest of the program
knows `haloscope.regions` alone.
"""
