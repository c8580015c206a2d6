"""Choosing. Law: pure; observed, resource and settings types only.

No kopf, HTTP, asyncio, clock, environment, random or logging; `now` is an argument.
"""
