"""An error on its way from one process to another: message, code and status."""

from tapeway.errors import ConfigError, TapewayError

Trouble = tuple[str, str, int]


def told(error: TapewayError) -> Trouble:
    """What is told of an error."""
    return error.message, error.code, error.status


def raised(trouble: Trouble) -> TapewayError:
    """The error to raise where it was heard."""
    message, code, status = trouble
    kind = ConfigError if code == ConfigError.code else TapewayError
    return kind(message, code=code, status=status)
