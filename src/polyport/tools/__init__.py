"""Floor 4: what a model may call. Peers of `agents/`, `models/`, `stores/` and `plugins/`, which they never import."""
