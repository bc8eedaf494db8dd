"""HTTP listeners with bounds on everything, TLS, the bearer token, the event loop and threads.

``listener`` is the class to use, ``web`` is what request handlers use; the other HTTP modules serve ``listener``.
"""
