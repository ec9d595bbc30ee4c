"""What people read of a run: pictures, cards and tables."""
