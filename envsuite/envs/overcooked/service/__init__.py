"""Overcooked, versions 1 and 2: orders with deadlines in kitchens whose layout decides, one step per command."""
