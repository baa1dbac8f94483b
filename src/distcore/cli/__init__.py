"""What each command of the command line does: arguments in, library call, words out."""
