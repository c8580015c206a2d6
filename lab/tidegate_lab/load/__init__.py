"""Real streaming load, and what it measured. Law: httpx and the standard library: it runs in small pods."""
