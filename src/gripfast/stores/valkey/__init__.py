"""One Valkey server. All of it is `stores/redis/`: Valkey began as a copy of Redis, and runs the same scripts."""
