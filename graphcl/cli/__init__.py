"""The command line: arguments, help texts, tab completion, exit codes."""
