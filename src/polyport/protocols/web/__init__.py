"""A compiled web page served beside the API: that of google-adk, or one of your own (spec rest 9.1)."""
