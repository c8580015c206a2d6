"""Deciding what the next step computes. Law: the standard library only; no torch, clock, threads or logging."""
