"""Amazon S3 and the stores that speak its API."""
