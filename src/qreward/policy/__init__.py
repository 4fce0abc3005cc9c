"""Pure decisions: time comes in, a decision goes out. No I/O, no clock, no dice, no locks."""
