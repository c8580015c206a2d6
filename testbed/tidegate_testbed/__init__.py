"""A real Kubernetes on this machine, for the demo and the tests. Law: the standard library only, so that it runs first.

Everything it starts lives in one network namespace, one cgroup root and one folder, and carries a mark in its
environment; `down` removes what carries the mark and nothing else.
"""
