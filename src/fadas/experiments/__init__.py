"""From an experiment file to runs."""
