"""What commands draw in the terminal."""
