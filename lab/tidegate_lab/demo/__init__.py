"""The demo: from nothing to an answer, then from one replica to three and back. Law: people's own commands only.

command -> story -> steps (shell), places (testbed or a cluster of yours), objects, burst
"""
