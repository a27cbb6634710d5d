"""Methods that serve theory more than tables, which no default plan knows."""
