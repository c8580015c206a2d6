"""`make bench-real`: the same traffic through real pods of the testbed and through the simulator, side by side.

Law: acts on the testbed by people's own commands; the simulator gets an engine fitted before, the cold starts seen, and
nothing else of the run.
"""
