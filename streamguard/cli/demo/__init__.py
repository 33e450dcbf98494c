"""`streamguard demo`."""
