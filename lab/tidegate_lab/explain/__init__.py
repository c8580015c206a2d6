"""Why a service has as many replicas as it has, for people. Law: looks and prints; changes nothing in the cluster."""
