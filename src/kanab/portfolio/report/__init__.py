"""Many experiments in words, pictures and pages."""
