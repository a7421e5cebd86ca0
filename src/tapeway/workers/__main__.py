"""`python -m tapeway.workers`: the entry point of worker processes, for the supervisor only."""

from tapeway.importing import imported, without_authorities

if __name__ == "__main__":
    with without_authorities():
        worker = imported("tapeway.workers.worker")
    worker.main()
