"""Locks in a folder of one machine, one file for each name: `files:///var/lib/app/locks`."""
