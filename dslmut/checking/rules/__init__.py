"""The rules: plain functions from what a walk found to diagnostics."""
