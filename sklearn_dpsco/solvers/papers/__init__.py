"""Methods that serve theory more than tables: one file for each, and no default plan knows them."""
