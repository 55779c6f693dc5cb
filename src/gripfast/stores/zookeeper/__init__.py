"""ZooKeeper, over kazoo: locks that live with their session."""
