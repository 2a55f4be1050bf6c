"""The schema of a table, and its translations into each language rows travel in."""
