"""The durable records of dispatches, in SQL: schema, rows, leases, the queue's table."""
