"""Locks in a folder of one machine, a file each: `files:///var/lib/app/locks`."""
