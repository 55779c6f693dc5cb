"""The public surface: clients, locks and leases, in two thin colours over one core."""
