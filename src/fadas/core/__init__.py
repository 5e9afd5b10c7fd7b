"""The engine: bookkeeping, server, model and update types. It imports no algorithm."""
