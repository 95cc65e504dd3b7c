"""Who goes for whom."""
