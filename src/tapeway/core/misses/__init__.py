"""Why a request was missed: the nearest recordings, where they differ, what to do."""
