"""Every history of two or three servers with replicas and up to two failovers: which rule leaves no two holders?

The production store and its scripts run here, each request as one step. So this is no model of the rule, but one of
what is around it: servers that crash, are promoted and demoted, and replicas that have any beginning of what their
primary has written. Messages are not delayed here, and clients do not retry by themselves: the scenarios `failover-0`
to `failover-2` do that.

    servers   what a server has, and what becomes of it; a table that grows, filled by running the real thing
    model     a state, and what can happen next
    rules     which rules are searched, in which world, and what the search says of each
"""
