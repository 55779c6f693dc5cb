"""AsyncClient, AsyncLock and AsyncLease. Loaded when one of them is used: asyncio costs as much as all the rest."""
