"""Reading model files: metadata, configuration and where each tensor lies. Law: the standard library only."""
