"""Where the unknowns lie and which rank owns which of them."""
