"""What a client does with a job."""
