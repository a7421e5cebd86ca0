"""How many stores a call has gone through that are other tapeways: in a circle it would never end."""

from contextvars import ContextVar

HEADER = "Tapeway-Store-Hops"
MOST = 8

HOPS: ContextVar[int] = ContextVar("hops", default=0)
