"""Tables of results: what they consist of (spec), the jobs that fill them, the store, means and tests, rendering."""
