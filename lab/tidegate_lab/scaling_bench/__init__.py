"""Our scaling against others' over the same traffic, in the simulator; `make bench-scaling` runs it.

Law: it drives `simulate` and `traffic` and chooses nothing itself; what it prints is worked out from the rows that it
writes; a run is kept by what it depends on, so that a rerun costs nothing.
"""
