"""Training algorithms, one file each, and the policy step that they share."""
