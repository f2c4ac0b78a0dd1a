"""The checker: source in, diagnostics out. Pure, and without torch."""
