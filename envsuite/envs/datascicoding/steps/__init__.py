"""Feature engineering in steps that are kept if they help, in the form of CAAFE."""
