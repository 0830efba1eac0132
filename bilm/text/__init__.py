"""Raw files to tokenised sentences: what a file is, its text, normal form, sentences and words."""
