"""What ``@fn`` does with a function, and the run time of what it makes. Needs torch."""
