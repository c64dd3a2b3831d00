"""May this data pass, and which of it is best: the verdict on rows, and the explained rank."""
