"""What the SQL stores share: leases in a table, row locks and advisory locks, whatever the engine and the colour."""
