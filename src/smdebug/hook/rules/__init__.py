"""The rules that a hook evaluates beside its job, and requests to stop it."""
