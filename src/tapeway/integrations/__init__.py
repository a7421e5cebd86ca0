"""Where other tools meet tapeway's stores from inside a Python program."""
