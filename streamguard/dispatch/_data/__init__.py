"""The bottom of dispatch: statuses, events, rows, the output timeout. Pure: no thread, process or database."""
