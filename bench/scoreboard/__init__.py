"""The scoreboard: runs Tidegate, its peers and bare ceilings in turns, and writes docs/performance.md from the results."""
