"""The `tidegate` command: load, watch, demo. Imports of operator and engine only what is pure.

cli -> demo -> watch -> cluster
   \\-> load                         load also runs alone, in a pod that has only httpx
"""
