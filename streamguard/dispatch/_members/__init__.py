"""The kinds of members: a function, a program, a chat endpoint."""
