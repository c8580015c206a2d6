"""Touching the API server, the pods and the clock. Law: chooses nothing."""
