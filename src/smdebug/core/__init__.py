"""Import paths of smdebug 1.0: every name here lives elsewhere, under a name of its own."""
