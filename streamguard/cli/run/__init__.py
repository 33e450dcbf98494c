"""`streamguard run`."""
