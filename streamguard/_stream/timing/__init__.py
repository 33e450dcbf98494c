"""When things happened to a stream, and which of its clocks fires. Pure: times are arguments."""
