"""One run's folder: claiming, writing, reading it."""
