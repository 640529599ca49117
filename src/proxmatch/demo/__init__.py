"""The demo: one story on whole pictures, told in numbers, pictures and a page."""
