"""The accuracy suite: runs bench/accuracy, judges what it printed, and writes docs/accuracy.md from the results."""
