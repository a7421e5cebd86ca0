"""The steps of cursors: those that wait, made by the event loop itself or in the thread of the file."""
