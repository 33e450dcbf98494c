"""Child processes: spawning, pipes, termination, descendants, exit clean-up, CPU activity."""
