"""Published tasks of TWOSOME and POAD, with all their quirks."""
