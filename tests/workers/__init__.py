"""Worker processes that misbehave, each in its own way."""
