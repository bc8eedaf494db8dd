"""What the app says: reports over HTTP, datagrams, and scraped metrics."""
