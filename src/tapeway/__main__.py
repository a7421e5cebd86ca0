"""`python -m tapeway`: the command, for where its script is not on the search path."""

from tapeway.cli.main import main

if __name__ == "__main__":
    main()
