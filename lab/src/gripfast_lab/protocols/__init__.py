"""The protocols, as programs that are short enough to be read. What is wrong with each is found by searching."""
