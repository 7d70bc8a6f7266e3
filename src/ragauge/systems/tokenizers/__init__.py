"""Texts to pieces that are known by number; each library loads when its tokenizer is made."""
