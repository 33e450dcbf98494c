"""One supervised command: its options, clock, watch and result."""
