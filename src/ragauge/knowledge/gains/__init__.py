"""What adding documents changes: weighed terms, what each document has to do with them, and which of them to take."""
