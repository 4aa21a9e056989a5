"""The command line: arguments, help texts, exit codes."""
