"""Look inside the embedding tables of saved language models."""
