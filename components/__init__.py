"""All of Ratchet's logic: pure Python, one folder per noun, paths and parameters in, files and a report out."""
