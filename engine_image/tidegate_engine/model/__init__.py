"""Networks and their weights. Law: torch, kernels and files; no requests, no environment; the rank comes in a Shard."""
