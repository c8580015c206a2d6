"""The process that steps. Law: link, core, model, devices, processes; no HTTP, no text."""
