"""Floor 8: the command line. Turns words into an App, and an App into text on a terminal or a listening server."""
