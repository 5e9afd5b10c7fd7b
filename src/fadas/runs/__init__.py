"""One run's folder: who may write it, writing and reading it, checkpoints, sinks."""
