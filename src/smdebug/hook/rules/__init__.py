"""The rules that a hook evaluates during its job, and requests to stop it."""
