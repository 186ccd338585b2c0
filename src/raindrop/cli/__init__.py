"""The command line: app.py has the entry point, each of the other files one group of commands."""
