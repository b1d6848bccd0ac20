"""Arrays in, arrays out: this package knows no token and no file."""
