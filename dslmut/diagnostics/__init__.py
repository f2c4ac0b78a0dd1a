"""Diagnostics: what is wrong, where, why, and the code to write. Imports no torch."""
