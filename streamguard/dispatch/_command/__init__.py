"""One supervised command: its options, its clock, its watch, its result."""
