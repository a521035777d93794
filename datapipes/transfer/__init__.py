"""Requests on their way: what one is, what sends it, which errors go again. Listing and loading both stand on it."""
