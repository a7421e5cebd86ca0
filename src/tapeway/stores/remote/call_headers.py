"""What a store says with each call to the tapeway that keeps its cassettes.

How many such stores the call has gone through: in a circle it would never end. And its version: both
sides have to know the same fields and the same cassettes.
"""

from contextvars import ContextVar

HOPS_HEADER = "Tapeway-Store-Hops"
VERSION_HEADER = "Tapeway-Store-Version"
MOST_HOPS = 8

HOPS: ContextVar[int] = ContextVar("hops", default=0)
