"""Ways in which a packed message gets from one rank to another, a file each."""
