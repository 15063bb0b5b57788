"""The groups of the scoreboard: each has a function `measure` that returns rows."""
