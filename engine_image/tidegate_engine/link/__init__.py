"""Messages and the channel between server and runtime.

Law: the standard library, msgspec and core.request; no torch, no text.
"""
