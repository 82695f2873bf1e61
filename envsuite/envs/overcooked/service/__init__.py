"""Overcooked, version 1: orders with deadlines in kitchens whose layout decides, one primitive step per command."""
