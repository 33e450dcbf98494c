"""`streamguard tail`."""
