"""How many replicas one operator process can watch: the real process on one core, against a stand-in on another.

Law: nothing of the operator is imported; it is started as the chart starts it, and measured from outside, by its
`/metrics` and the kernel's accounts. Nothing that is shipped imports this package.
"""
