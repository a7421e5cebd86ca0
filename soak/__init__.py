"""Traffic and faults for minutes, and whether what clients saw is what is promised: a tool beside the tests."""
