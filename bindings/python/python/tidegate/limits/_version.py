"""Which versions of `limits` the plugin works with."""

LOWEST = (5, 2)


def require_limits() -> None:
    """Raises `ImportError` unless `limits` is there and recent enough."""
    try:
        from limits import __version__ as found
    except ImportError as error:
        raise ImportError("tidegate.limits needs the package limits, 5.2 or later: it is not installed") from error
    numbers = tuple(int(part) for part in found.split(".")[:2] if part.isdigit())
    if numbers < LOWEST:
        raise ImportError(f"tidegate.limits needs limits 5.2 or later, and this is `{found}`")


require_limits()
