"""New kernel projects: names, rendered files, and putting them on disk. Nothing here prints."""
