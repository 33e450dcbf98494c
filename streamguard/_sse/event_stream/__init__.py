"""From bytes to events: framing, fields, and heartbeats that look like events. Pure."""
