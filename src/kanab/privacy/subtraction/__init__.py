"""What subtraction shows that no table has: classes inside classes, experiments inside experiments."""
