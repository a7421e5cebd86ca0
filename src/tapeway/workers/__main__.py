"""`python -m tapeway.workers`: the entry point of worker processes, for the supervisor only."""

from tapeway.workers.worker import main

main()
