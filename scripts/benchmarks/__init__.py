"""What scripts/bench measures, a module a family."""
