"""`streamguard dispatch`."""
