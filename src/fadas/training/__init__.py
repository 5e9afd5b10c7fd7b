"""Local training: what a client does with a job."""
