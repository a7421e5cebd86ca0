"""The private names of libraries that the source uses: at most five, each with its reason."""

ALLOWED: dict[tuple[str, str], str] = {
    ("core/automata.py", "_regexp"): (
        "the search of an RE2 pattern makes a generator and a match, which take longer than the "
        "search itself; each recording is searched several times"
    ),
    ("integrations/dspy/live_guard.py", "_engine"): (
        "DSPy has no public place behind its cache where all its calls go through"
    ),
    ("integrations/dspy/live_guard.py", "_compute_embeddings"): "the same, for embeddings",
    ("integrations/dspy/live_guard.py", "_acompute_embeddings"): "the same, for those awaited",
    ("integrations/dspy/values.py", "_hidden_params"): (
        "LiteLLM keeps the cost of a call there, and DSPy's history shows it"
    ),
}
MOST = 5
