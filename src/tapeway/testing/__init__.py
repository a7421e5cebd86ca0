"""An upstream that ships with tapeway: the providers' wire formats on loopback, no key needed."""

from tapeway.testing.stand_in import Received, StandIn, ThreadedStandIn

__all__ = ["Received", "StandIn", "ThreadedStandIn"]
