"""Programs run many times in one process, and what they may not leave behind."""
