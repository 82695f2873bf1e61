"""Salads of TWOSOME and POAD: one cook, one order, macro-actions."""
