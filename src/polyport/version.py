"""The version of Polyport, in the one place that everybody reads."""

VERSION = "0.1.0"
