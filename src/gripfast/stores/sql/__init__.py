"""What the SQL stores share: leases in a table, row locks and advisory locks, for every engine, sync and async."""
