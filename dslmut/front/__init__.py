"""Adapters: the command line and the demo. Nothing imports them."""
