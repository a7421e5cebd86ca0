"""`python -m tapeway.workers`: how a worker is started. Nobody else has a use for it."""

from tapeway.workers.worker import main

main()
