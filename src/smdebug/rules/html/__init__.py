"""Pages for a browser: one file each, with its drawings and nothing from elsewhere."""
