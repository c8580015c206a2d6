"""Rivals: the published laws of other autoscalers, over the same facts as ours; and two plans that know the traffic.

Law: pure, as `simulate` is; each law names the file it was read from and keeps its published defaults; none knows of
ours, and ours knows none of them.
"""
