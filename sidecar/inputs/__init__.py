"""The inputs from the app: reports over HTTP, datagrams, and scraped metrics."""
