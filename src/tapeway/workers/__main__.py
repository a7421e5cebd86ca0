"""`python -m tapeway.workers`: the entry point of worker processes, for the supervisor only."""

from tapeway.importing import imported

if __name__ == "__main__":
    imported("tapeway.workers.worker").main()
