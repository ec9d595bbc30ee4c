"""Requests: who asks, what is taken in, what is answered."""
