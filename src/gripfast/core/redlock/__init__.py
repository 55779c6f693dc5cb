"""Redlock: a lock on several independent nodes, held by the client that has a majority of them.

nodes     the port: what can be requested from N nodes at once, and what each may answer
ballot    counting the answers, decided as early as it can be
fence     the fencing rule, and the argument why its tokens grow
records   what a client knows of its own claims
pauses    how long to pause after a vote that nobody won
store     the store: claims, renewals and releases, made of those
"""
