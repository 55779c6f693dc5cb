"""The locks of the field, from worst to best, each with the shortest history that breaks it."""
