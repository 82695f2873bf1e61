"""BabyAI: instructions in a grid world seen as text (Chevalier-Boisvert et al., 2019; Carta et al., 2023)."""
