"""What a language model in this process needs: its template, its cache, its decoding. Imports torch."""
