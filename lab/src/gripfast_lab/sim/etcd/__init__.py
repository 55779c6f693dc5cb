"""A cluster of etcd in the world: a model of what it does, not of the messages between its members.

state     what one agreed log makes of keys, leases and revisions; pure, and held to a real etcd by a test
cluster   who leads, what is agreed upon, and who has applied how much of it
lessor    when a leader, or one that believes to be, has leases revoked
member    a member that clients reach: answers, watches, keep-alives
link      production's way to try members, driven by the world's network and time
observer  what the cluster really did, recorded independently of what the store writes
stage     one run
faults    what goes wrong with members, and with the versions of etcd that have a fault
small     a small world, all of it
"""
