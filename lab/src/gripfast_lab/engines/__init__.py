"""What the protocols ask: each engine is a function from what it has and what it is asked to what it has then."""
