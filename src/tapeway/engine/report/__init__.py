"""The report on the cassettes of a run, and its forms for people, build servers and scripts."""
