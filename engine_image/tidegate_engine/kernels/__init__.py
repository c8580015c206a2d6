"""Arithmetic on tensors, and a plain torch reference of each. Law: torch and triton only, nothing of ours."""
