"""The demo: three sales of three merchants, with drawn pictures, for a fresh installation."""
