"""MetaSchedule (Ansor's successor in TVM), tuned for each shape."""
