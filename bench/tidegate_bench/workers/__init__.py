"""One engine a process. Law: its own engine, and of ours only `messages` and `serve`, which need nothing installed."""
