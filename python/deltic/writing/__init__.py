"""What a write gets: data of many libraries as Arrow, and options."""
