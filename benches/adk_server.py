"""Serves `adk_agents/` with google-adk at its best: sessions in memory unless told otherwise, no telemetry SDK, no access log.

Started by `main.py` with the Python of the bench environment.
"""

import logging
import os
from pathlib import Path

os.environ["OTEL_SDK_DISABLED"] = "true"

from google.adk.cli.fast_api import get_fast_api_app
from serving import arguments, serve

if __name__ == "__main__":
    options = arguments()
    logging.getLogger().setLevel(logging.ERROR)
    app = get_fast_api_app(
        agents_dir=str(Path(__file__).parent / "adk_agents"),
        session_service_uri=f"sqlite:///{options.sqlite}" if options.sqlite else "memory://",
        artifact_service_uri="memory://",
        memory_service_uri="memory://",
        use_local_storage=False,
        web=False,
        a2a=options.a2a,
    )
    serve(app, options.fd)
