"""Commands of the command line, a file each: they read options, call the work, print."""
