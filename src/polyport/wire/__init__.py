"""Floor 2: other people's vocabularies as pure functions between bytes or JSON and our Structs. No I/O, no waiting."""
