"""How new documents are: chunks and their nearest known ones, words that nobody has, claims that nobody made."""
