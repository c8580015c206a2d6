"""How long a test waits for what has to come."""

PATIENCE_S = 90.0
"""Seconds. Passed only where something hangs: everything takes ten times as long on a machine whose cores are lent."""
