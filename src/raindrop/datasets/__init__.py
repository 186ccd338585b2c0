"""Raw files, or nothing at all, to an EventTable."""
