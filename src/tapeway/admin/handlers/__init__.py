"""The handlers of the admin API's operations, a file for each noun of the API."""
