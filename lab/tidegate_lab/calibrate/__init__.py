"""From a measured run to an engine model, and how far that is from the truth.

Law: files of runs, and the simulator; nothing is measured here.
"""
