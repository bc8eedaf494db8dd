"""Success-prioritized, concurrency-limited fallback cascade (timmc), as a library."""
