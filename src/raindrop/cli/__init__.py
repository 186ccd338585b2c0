"""The command line; app.py has the entry point, the other files one group of commands each."""
