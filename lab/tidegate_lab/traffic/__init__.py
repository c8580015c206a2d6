"""Traffic: what requests came when, and how long they were. Law: numpy and files; nothing that acts on them."""
