"""Reproduce the paper's tables and figures."""
