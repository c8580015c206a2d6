"""The yardstick: our engine and its peers on the same file, cores and prompts, taking turns on one machine.

Law: only `workers` hold an engine, each in a process (and, where need be, an environment) of its own; what plans,
takes turns and reports never imports torch. Nothing that is shipped imports this package.
"""
