"""A fleet in virtual time, with the production code of deciding and scheduling in it.

Law: the operator's `decide` and `observed` and the engine's `core`, which are pure, and numpy; no clock, no network, no
randomness but from the scenario's seed.
"""
