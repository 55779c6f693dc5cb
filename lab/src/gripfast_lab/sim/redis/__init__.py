"""A Redis server without a socket or a clock of its own: the same commands, the same Lua, the same answers."""
