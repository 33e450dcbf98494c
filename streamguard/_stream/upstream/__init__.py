"""The reader thread's side of a stream: the request, the response, the decoded chunks, the retry policy."""
