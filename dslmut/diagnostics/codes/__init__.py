"""One small class per code: its docstring is its page."""
