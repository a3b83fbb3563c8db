"""The measurement system: record, trace, replay, gpu, analysis, diagnosis, maps, report, explorer, export.

Imported by commands only; imports device, io and errors, and nothing of the programs that it
measures. The rest of Haloscope imports `haloscope.regions` instead.
"""
