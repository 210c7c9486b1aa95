"""Two deep networks on the same data, one of which cannot learn, and what their runs tell."""
