"""The demo: three sales of three merchants, with pictures, for a fresh installation."""
