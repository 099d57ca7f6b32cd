"""What reaches the Hub: the card, the plan of an upload, and carrying it out."""
