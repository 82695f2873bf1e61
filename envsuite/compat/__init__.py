"""Drop-in replacements for other packages' interfaces, on envsuite's engines."""
