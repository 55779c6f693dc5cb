"""PostgreSQL, over libpq."""
