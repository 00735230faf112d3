"""A played race: actors stand still at every point until they are let go; the same each time."""
