"""Where the time of a build went: figures out of its timeline, and what shows them."""
