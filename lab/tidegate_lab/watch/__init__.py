"""The live table of one service. Law: looks and prints; changes nothing in the cluster."""
