"""`make bench-real`: the same traffic through real pods of the testbed and through the simulator, side by side.

Law: acts on the testbed by people's own commands; the simulator gets what was measured before, and nothing of the run.
"""
