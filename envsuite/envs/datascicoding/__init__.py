"""DataSciCoding: write scikit-learn code, be paid in ROC AUC."""
