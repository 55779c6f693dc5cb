"""What runs the recipes of `core`: on the calling thread (`blocking`) or on an event loop (`aio`)."""
