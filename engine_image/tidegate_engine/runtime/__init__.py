"""The process that steps. Law: link, core, model, devices, processes, the grammar library; no HTTP, no text."""
