"""Identity: authenticators and authorizers, for `App(auth=...)` (spec rest 3)."""
