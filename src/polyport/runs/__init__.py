"""Floor 5: owns every run. Protocols start and follow runs here; nobody else makes a task for one."""
