"""Loading variants with the real client, in processes of their own. What builds and checks have in common."""
