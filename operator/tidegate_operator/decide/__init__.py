"""Choosing. Law: pure; observed, resource and settings types only; no kopf, HTTP, asyncio, clock, environment, random, logging."""
