"""BabyAI: instructions in a grid world observed as text (Chevalier-Boisvert et al., 2019; Carta et
al., 2023).
"""
