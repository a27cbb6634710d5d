"""Tables: public bounds and units, invalid records, rows and their sums."""
