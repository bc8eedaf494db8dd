"""The rules of one container: its states and what moves it between them."""
