"""What the body of an optimizer computes, as far as its source shows it for certain."""
