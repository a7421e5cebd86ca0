"""What comes before anything is served: settings out of all sources, and a log that hides them."""

import logging
import os
from collections.abc import Mapping
from pathlib import Path

from tapeway.core.redaction.credentials import environment_credentials
from tapeway.logs import configure
from tapeway.settings.options import Settings, known_secrets
from tapeway.settings.sources import load_settings

log = logging.getLogger(__name__)


def prepare(flags: Mapping[str, object]) -> Settings:
    """The settings these flags, the environment and the file make, with logging set up for them.

    Raises ConfigError.
    """
    loaded = load_settings(flags, os.environ, Path())
    settings = loaded.settings
    credentials = [value for _, value in environment_credentials(os.environ)]
    configure(settings.log_format, settings.log_level, [*known_secrets(settings), *credentials])
    for warning in loaded.warnings:
        log.warning("%s", warning)
    return settings
