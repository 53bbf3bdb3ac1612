"""Telemetry as the standard OTEL_* environment wants it: exporters over OTLP/HTTP, and the plugin that feeds them.

Called once per process by the command line; usable in code as `App(plugins=[p for p in [telemetry_from_env()] if p])`. Imports
OpenTelemetry only when the environment asks for it. A provider that the process has set already is used as it is.
"""

import os
import sys
from collections.abc import Mapping

from polyport.errors import ConfigError
from polyport.ports.plugin import Plugin

SIGNALS = ("TRACES", "METRICS", "LOGS")
_ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
_SERVICE = "polyport"
_YES = "true"


def telemetry_from_env(environ: Mapping[str, str] = os.environ) -> Plugin | None:
    """The plugin when the environment names an endpoint (OTEL_EXPORTER_OTLP_ENDPOINT, or one of its kind for a signal) or an
    exporter (OTEL_TRACES_EXPORTER=otlp and so on), or when the process has a tracer provider of its own; else None, also when
    OTEL_SDK_DISABLED is true. Sets the global providers. ConfigError for an exporter or protocol that is not there, and
    without the packages."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == _YES:
        return None
    wanted = [signal for signal in SIGNALS if _wanted(signal, environ)]
    if not wanted and not _has_provider():
        return None
    try:
        if not wanted:
            from polyport.plugins.telemetry import TelemetryPlugin  # costly

            return TelemetryPlugin()
        from polyport.plugins.telemetry_export import ExportedTelemetry  # an optional dependency
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"the OTEL_* environment asks for telemetry, which needs {error.name!r}: pip install 'polyport[otel]'"
        ) from None
    return ExportedTelemetry(wanted, "" if _is_named(environ) else _SERVICE)


def _wanted(signal: str, environ: Mapping[str, str]) -> bool:
    """Whether a signal is to be exported. ConfigError for what it cannot be exported by."""
    exporter = environ.get(f"OTEL_{signal}_EXPORTER", "").strip().lower()
    if exporter not in ("", "none", "otlp"):
        raise ConfigError(f"OTEL_{signal}_EXPORTER is {exporter!r}; it may be otlp or none")
    endpoint = environ.get(f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT") or environ.get(_ENDPOINT)
    if exporter == "none" or not (exporter or endpoint):
        return False
    names = (f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
    for name in names:
        protocol = environ.get(name, "").strip().lower()
        if protocol:
            if protocol != "http/protobuf":
                raise ConfigError(
                    f"{name} is {protocol!r}; only http/protobuf is spoken here (port 4318 of a collector)"
                )
            break
    return True


def _has_provider() -> bool:
    """Whether somebody has set a tracer provider; then the SDK is loaded."""
    if "opentelemetry.sdk.trace" not in sys.modules:
        return False
    from opentelemetry import trace  # it is loaded anyway

    return isinstance(trace.get_tracer_provider(), sys.modules["opentelemetry.sdk.trace"].TracerProvider)


def _is_named(environ: Mapping[str, str]) -> bool:
    return bool(environ.get("OTEL_SERVICE_NAME")) or "service.name=" in environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
