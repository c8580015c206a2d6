"""How many replicas a load needs, and whether any number will do.

Law: traffic, and the simulator's fixed replicas; numbers come from simulations, not from formulas.
"""
