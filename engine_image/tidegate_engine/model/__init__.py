"""Networks and their weights. Law: torch, kernels and files; no requests, no environment; the rank comes in a Shard."""

from tidegate_engine.model.load import LoadedModel, load

__all__ = ["LoadedModel", "load"]
