"""Redis or Valkey whose primary is found through Sentinels. All but the way to the server is `stores/redis/`."""
