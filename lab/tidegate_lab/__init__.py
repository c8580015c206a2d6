"""The `tidegate` command: load, measure, report. May import operator.decide and engine.core, both pure."""
