from support.browser import browser

__all__ = ["browser"]
