"""The algorithm, without colour: recipes over ports. See `ports` for what a recipe may await."""
