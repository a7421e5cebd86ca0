"""The broker decides, the recorder asks and makes durable."""
