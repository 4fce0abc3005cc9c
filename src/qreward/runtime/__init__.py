"""The one driver: it obeys the policies, waits, starts, cancels. Nothing else in the package does."""
